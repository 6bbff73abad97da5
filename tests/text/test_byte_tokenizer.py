from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import CorruptFile, InvalidOption
from quire.text import ByteTokenizer, as_tokenizer

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=6)


def test_a_token_is_a_byte_plus_the_offset():
    encoded = ByteTokenizer().encode_batch(["hi", "", "é"])
    assert encoded.tokens.tolist() == [107, 108, 198, 172]
    assert encoded.lengths.tolist() == [2, 0, 2]


def test_pad_bos_and_eos_are_0_1_and_2_below_259_ids():
    tokenizer = ByteTokenizer()
    specials = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert specials == (0, 1, 2)
    assert tokenizer.byte_offset == 3
    assert tokenizer.vocab_size == 259


@given(texts, st.integers(0, 500))
def test_any_text_survives_a_round_trip(texts, byte_offset):
    tokenizer = ByteTokenizer(
        byte_offset=byte_offset, pad_token_id=None, bos_token_id=None, eos_token_id=None
    )
    encoded = tokenizer.encode_batch(texts)
    assert encoded.lengths.tolist() == [len(text.encode()) for text in texts]
    assert tokenizer.decode(encoded.tokens.tolist()) == "".join(texts)
    assert encoded.tokens.max(initial=0) < tokenizer.vocab_size == 256 + byte_offset


def test_special_ids_are_left_out_of_the_text_and_broken_characters_are_replaced():
    tokenizer = ByteTokenizer()
    assert tokenizer.decode([1, 107, 108, 2, 0]) == "hi"
    assert tokenizer.decode([198]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("name", ["pad_token_id", "bos_token_id", "eos_token_id"])
@pytest.mark.parametrize("token", [3, 258, -1])
def test_a_special_id_inside_the_byte_range_is_an_error(name, token):
    with pytest.raises(InvalidOption, match=rf"{name} is {token} but bytes are the ids from 3 to"):
        ByteTokenizer(**{name: token})


def test_special_ids_above_the_bytes_widen_the_vocabulary():
    tokenizer = ByteTokenizer(byte_offset=0, pad_token_id=256, bos_token_id=None, eos_token_id=300)
    assert tokenizer.vocab_size == 301
    with pytest.raises(InvalidOption, match="byte_offset is -1 but must be >= 0"):
        ByteTokenizer(byte_offset=-1)


def test_a_saved_tokenizer_is_loaded_from_its_folder(tmp_path):
    ours = ByteTokenizer(byte_offset=10, pad_token_id=9)
    ours.save_pretrained(tmp_path / "checkpoint")
    assert as_tokenizer(tmp_path / "checkpoint") == ours


@pytest.mark.parametrize("text", ["", "[]", '{"offset": 3}', '{"byte_offset": "x"}'])
def test_the_error_for_a_broken_file_names_it(tmp_path, text):
    (tmp_path / "byte_tokenizer.json").write_text(text)
    with pytest.raises(CorruptFile, match="byte_tokenizer"):
        as_tokenizer(tmp_path)
