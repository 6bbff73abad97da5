"""BOS opens fragments where the tokenizer itself would add it, unless an option decides."""

from __future__ import annotations

import json

import pytest
import tokenizers
from tests.corpus.corpora import jsonl, rows
from tests.text.word_tokenizer import word_backend, word_tokenizer
from tests.tokenizer_files import folder_of, load
from transformers import ByT5Tokenizer

import quire
from quire.errors import InvalidOption
from quire.stream import open_stream
from quire.text import ByteTokenizer, as_tokenizer
from quire.text.tokenizer import adds_bos


def llama():
    """A post-processor that adds BOS, as Llama's does."""
    backend = word_backend()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return word_tokenizer(backend=backend)


class Letters:
    """A callable that takes only texts."""

    bos_token_id, eos_token_id = 1, 2

    def __call__(self, texts):
        return {"input_ids": [[ord(letter) for letter in text] for text in texts]}


def saved(tokenizer, folder):
    tokenizer.save_pretrained(folder)
    return folder


KINDS = {
    "Llama": (lambda folder: llama(), True),
    "Llama's folder": (lambda folder: saved(llama(), folder / "llama"), True),
    "no post-processor": (lambda folder: word_tokenizer(), False),
    "GPT-2, whose BOS is EOS": (lambda folder: load("small-gpt2"), False),
    "GPT-2's folder": (lambda folder: folder_of("small-gpt2"), False),
    "Qwen, which has none": (lambda folder: load("small-qwen3"), False),
    "Qwen's folder": (lambda folder: folder_of("small-qwen3"), False),
    "a backend, which names none": (lambda folder: llama().backend_tokenizer, False),
    "byte": (lambda folder: "byte", True),
    "byte, without a BOS": (lambda folder: ByteTokenizer(bos_token_id=None), False),
    "slow": (lambda folder: ByT5Tokenizer(), False),
    "a function of texts": (lambda folder: Letters(), False),
}


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    make, adds = KINDS[request.param]
    return make(tmp_path), adds


def test_whether_a_tokenizer_itself_adds_bos_is_detected(kind):
    tokenizer, adds = kind
    assert adds_bos(as_tokenizer(tokenizer)) is adds


def test_pack_dataset_adds_what_the_tokenizer_would(kind):
    tokenizer, adds = kind
    records = [{"text": "5 6"}, {"text": "7"}]
    given = {
        add: quire.pack_dataset(records, tokenizer, max_length=32, add_bos=add)
        for add in (None, True, False)
    }
    assert given[None] == given[adds]
    assert (given[True] == given[False]) == (as_tokenizer(tokenizer).bos_token_id is None)


def test_pack_corpus_records_what_it_resolved(tmp_path, kind):
    tokenizer, adds = kind
    source = jsonl(tmp_path / "a.jsonl", ["5 6", "7"])
    for name, given in (("default", {}), ("same", {"add_bos": adds})):
        quire.pack_corpus([source], tmp_path / name, tokenizer, max_length=32, **given)
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        assert manifest["options"]["add_bos"] is adds
    assert rows(tmp_path / "default") == rows(tmp_path / "same")
    again = {"max_length": 32, "resume": True}
    assert quire.pack_corpus([source], tmp_path / "default", tokenizer, **again).was_complete


def test_literal_rows_of_a_tokenizer_that_adds_bos():
    (row,) = quire.pack_dataset(
        [{"text": "a b"}, {"text": "c"}], llama(), max_length=16, strategy="greedy"
    ).to_pylist()
    assert row == {"input_ids": [1, 7, 8, 2, 1, 9, 2], "document_starts": [0, 4]}
    (row,) = quire.pack_dataset(
        [{"text": "a b"}, {"text": "c"}], word_tokenizer(), max_length=16, strategy="greedy"
    ).to_pylist()
    assert row == {"input_ids": [7, 8, 2, 9, 2], "document_starts": [0, 3]}


def test_block_tokenize_fn_keeps_the_default_of_its_seed():
    for tokenizer in (llama(), word_tokenizer()):
        found = quire.block_tokenize_fn({"text": ["a b"]}, tokenizer, "text")
        assert found["input_ids"] == [[1, 7, 8, 2]]


@pytest.mark.parametrize(("given", "expected"), [({}, 0), ({"add_bos": None}, 1)])
def test_a_stream_adds_no_bos_unless_the_tokenizer_decides(given, expected):
    config = {
        "data": {
            **{"backend": "local_text", "local_text": "a b", "repeat": False},
            "tokenizer": {"kind": "hf", **given},
        },
        "train": {"seq_len": 4, "batch_size": 1},
    }
    with open_stream(config, tokenizer=llama()) as stream:
        assert next(stream).input_ids.tolist()[0][0].count(1) == expected
        assert stream.config.data.tokenizer.add_bos is bool(expected)


def test_a_value_other_than_true_false_and_none_is_rejected():
    with pytest.raises(InvalidOption, match="add_bos is 'no' but must be True or False"):
        quire.pack_dataset([{"text": "a"}], "byte", max_length=8, add_bos="no")
