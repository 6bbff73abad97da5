# ruff: noqa: S106  (a token is no password)
from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest
import tokenizers
from tests.tokenizer_files import folder_of

from quire.errors import CorruptFile, InvalidOption
from quire.text import Tokenizer, as_tokenizer, tokenizer_file


@pytest.fixture
def folder(tmp_path):
    """A folder with a vocabulary of four words and the names of its special tokens."""
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "<s>": 2, "</s>": 3}, unk_token="a")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    configure(tmp_path, bos_token="<s>", eos_token={"content": "</s>", "lstrip": False})
    return tmp_path


def configure(folder, **config) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


def specials(tokenizer) -> tuple[int | None, int | None, int | None]:
    return tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id


def test_special_tokens_are_those_that_the_folder_names(folder):
    assert specials(as_tokenizer(folder)) == (2, 3, None)
    assert specials(as_tokenizer(folder / "tokenizer.json")) == (2, 3, None)
    assert as_tokenizer(os.fspath(folder)).vocab_size == 4


def test_a_file_without_a_config_has_no_special_tokens(folder):
    (folder / "tokenizer_config.json").unlink()
    assert specials(as_tokenizer(folder)) == (None, None, None)


def test_a_file_is_read_once_and_again_when_it_or_its_config_changed(folder):
    first = as_tokenizer(folder)
    assert as_tokenizer(folder) is first
    configure(folder, bos_token=None, eos_token="b")
    assert specials(as_tokenizer(folder)) == (None, 1, None)
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(text.replace('"b"', '"bee"'), encoding="utf-8")
    with pytest.raises(CorruptFile, match=r"eos_token is 'b' but .* has no such token"):
        as_tokenizer(folder)


def test_a_tokenizer_that_needs_remote_code_is_rejected(folder):
    configure(folder, auto_map={"AutoTokenizer": ["own_code.Tokenizer", None]})
    with pytest.raises(InvalidOption, match=r"requires custom code \(auto_map\), which quire"):
        as_tokenizer(folder)


def test_a_file_that_is_not_a_tokenizer_is_a_typed_error(folder):
    whole = (folder / "tokenizer.json").read_text(encoding="utf-8")
    for broken in ("", "{}", "not JSON", whole[: len(whole) // 2], '{"model": {"type": "?"}}'):
        (folder / "tokenizer.json").write_text(broken, encoding="utf-8")
        with pytest.raises(CorruptFile, match=r"tokenizer.json is not a tokenizer"):
            as_tokenizer(folder)


def test_a_broken_config_is_a_typed_error(folder):
    for broken, message in (("{", "is not JSON"), ("[]", "holds list, not an object")):
        (folder / "tokenizer_config.json").write_text(broken, encoding="utf-8")
        with pytest.raises(CorruptFile, match=message):
            as_tokenizer(folder)
    (folder / "tokenizer_config.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CorruptFile, match="is not JSON"):
        as_tokenizer(folder)


def test_a_path_without_a_tokenizer_is_an_error_that_says_what_to_pass(tmp_path):
    for path in (tmp_path, tmp_path / "nothing", "qwen3"):
        with pytest.raises(InvalidOption, match=r"no tokenizer at .*: pass 'byte', or the path"):
            as_tokenizer(path)


def test_a_tokenizer_file_needs_no_transformers():
    code = (
        "import sys; from quire import block_tokenize_fn as pack\n"
        f"rows = pack({{'text': ['Hello world']}}, {str(folder_of('small-gpt2'))!r}, 'text')\n"
        "assert rows['input_ids'] == [[756, 39, 531, 336, 317, 270, 75, 67, 756]], rows\n"
        "assert not {'transformers', 'torch', 'datasets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_texts_encoded_in_parts_have_the_same_tokens_as_all_at_once(folder, monkeypatch, limit):
    texts = ["a b", "", "b", "a " * 20, "", "b b a"]
    expected = as_tokenizer(folder).encode_batch(texts)
    assert expected.lengths.tolist() == [2, 0, 1, 20, 0, 3]
    sizes = []
    monkeypatch.setattr(tokenizer_file, "_PART", limit)
    parts = tokenizer_file._parts

    def watched(given):
        for part in parts(given):
            sizes.append(sum(map(len, part)) if len(part) > 1 else 0)
            yield part

    monkeypatch.setattr(tokenizer_file, "_parts", watched)
    encoded = as_tokenizer(folder).encode_batch(texts)
    assert encoded.tokens.tolist() == expected.tokens.tolist()
    assert encoded.lengths.tolist() == expected.lengths.tolist()
    assert encoded.tokens.dtype == "int32"
    assert max(sizes) <= limit, "only a text of its own is over the limit"


def test_no_texts_have_no_tokens(folder):
    encoded = as_tokenizer(folder).encode_batch([])
    assert (len(encoded.tokens), len(encoded.lengths)) == (0, 0)


def test_the_vocabulary_size_is_computed_once_and_sent_to_other_processes(folder):
    tokenizer = as_tokenizer(folder)
    assert isinstance(tokenizer, Tokenizer), "which asks for vocab_size, at every partition"
    assert vars(tokenizer)["vocab_size"] == tokenizer.vocab_size == 4
    assert vars(pickle.loads(pickle.dumps(tokenizer)))["vocab_size"] == 4  # noqa: S301
