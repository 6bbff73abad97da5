"""Texts to documents: the one place where specials are added."""

from __future__ import annotations

import pytest
from tests.text.literal_tokenizer import LiteralTokenizer

from quire.documents import Documents
from quire.errors import InvalidOption
from quire.text import EncodeOptions, as_tokenizer, encode_texts


def encode(texts: list[str], tokenizer=None, **options) -> Documents:
    return encode_texts(
        texts,
        as_tokenizer(tokenizer or LiteralTokenizer()),
        EncodeOptions(**{"add_bos": True, **options}),
    )


def contents(documents: Documents) -> list[list[int]]:
    values = documents.columns["input_ids"].to_pylist()
    spans = zip(documents.offsets.tolist(), documents.lengths.tolist(), strict=True)
    return [values[start : start + length] for start, length in spans]


def prefix(documents: Documents) -> int | None:
    at = documents.prefix_at
    return None if at is None else documents.columns["input_ids"][at].as_py()


def test_eos_is_a_documents_last_token_and_bos_is_stored_once():
    documents = encode(["10 11", "20"])
    assert contents(documents) == [[10, 11, 2], [20, 2]]
    assert prefix(documents) == 1 and documents.prefix == 1


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False])
def test_specials_are_added_only_on_request(bos, eos):
    documents = encode(["10", "20 21"], add_bos=bos, add_eos=eos)
    end = [2] if eos else []
    assert contents(documents) == [[10, *end], [20, 21, *end]]
    assert prefix(documents) == (1 if bos else None)


def test_specials_are_left_out_if_the_tokenizer_has_none():
    documents = encode(["10"], LiteralTokenizer(bos_token_id=None, eos_token_id=None))
    assert contents(documents) == [[10]] and prefix(documents) is None
    documents = encode(["10"], LiteralTokenizer(bos_token_id=None))
    assert contents(documents) == [[10, 2]] and prefix(documents) is None


def test_id_zero_is_a_special_token_like_any_other():
    documents = encode(["10"], LiteralTokenizer(bos_token_id=0, eos_token_id=0))
    assert contents(documents) == [[10, 0]] and prefix(documents) == 0


def test_a_text_that_starts_with_bos_gets_no_second_one():
    documents = encode(["1 10 11", "20", "1"])
    assert contents(documents) == [[10, 11, 2], [20, 2]]
    assert prefix(documents) == 1
    assert documents.ledger.documents.dropped == {"empty": 1}, "BOS alone is no content"
    several = encode(["1 1 1 10 1", "1 1", "20 1", "1 30", "1"])
    assert contents(several) == [[10, 1, 2], [20, 1, 2], [30, 2]]
    assert several.ledger.documents.dropped == {"empty": 2}
    assert contents(encode(["1 10"], add_bos=False)) == [[1, 10, 2]], "unless none is added"
    alike = LiteralTokenizer(bos_token_id=2, eos_token_id=2)
    assert contents(encode(["2 10 2"], alike)) == [[10, 2, 2]]


def test_empty_documents_are_left_out_and_counted_at_any_position():
    documents = encode(["", "10", "", " ", "20 21", ""])
    assert contents(documents) == [[10, 2], [20, 21, 2]]
    assert documents.numbers.tolist() == [1, 4]
    assert documents.ledger.documents.dropped == {"empty": 4}
    assert documents.ledger.tokens.input == 0, "the EOS of nothing is nothing"


@pytest.mark.parametrize("eos", [[2], []])
def test_bos_comes_first_where_the_first_document_is_empty(eos):
    """Both specials are then inserted at the same position."""
    documents = encode(["", "10"], add_bos=True, add_eos=bool(eos))
    assert documents.columns["input_ids"].to_pylist() == [1, *eos, 10, *eos]
    assert prefix(documents) == 1 and contents(documents) == [[10, *eos]]


def test_drop_longer_than_counts_bos_and_not_eos():
    texts = ["10", "10 11", "10 11 12"]
    documents = encode(texts, drop_longer_than=3)
    assert contents(documents) == [[10, 2], [10, 11, 2]]
    assert documents.ledger.documents.dropped == {"too_long": 1}
    assert documents.ledger.tokens.dropped == {"too_long": 3}
    assert len(encode(texts, drop_longer_than=3, add_bos=False)) == 3
    assert len(encode(texts, drop_longer_than=3, add_bos=False, add_eos=False)) == 3
    assert len(encode(texts, LiteralTokenizer(bos_token_id=None), drop_longer_than=3)) == 3


def test_a_text_is_cut_before_the_first_match():
    documents = encode(["10 11 99 12 99", "20", "99 30"], truncate_at=r"\b9+\b")
    assert contents(documents) == [[10, 11, 2], [20, 2]]
    assert documents.ledger.documents.dropped == {"empty": 1}


def test_no_texts_give_no_documents():
    assert contents(encode([])) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truncate_at": "("}, r"truncate_at is '\(', which is not a regular expression"),
        ({"truncate_at": 5}, "truncate_at is 5 but must be a string"),
        ({"drop_longer_than": 0}, "drop_longer_than is 0 but must be an integer >= 1"),
        ({"drop_longer_than": 2.5}, "drop_longer_than is 2.5"),
        ({"add_bos": "no"}, "add_bos is 'no' but must be True or False"),
        ({"add_eos": None}, "add_eos is None but must be True or False"),
    ],
)
def test_options_out_of_range_are_typed_errors(options, message):
    with pytest.raises(InvalidOption, match=message):
        EncodeOptions(**options)
