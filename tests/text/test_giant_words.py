"""A word over ten million characters is never given to a tokenizer: a bad record on every path."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.text.word_tokenizer import word_tokenizer
from tests.tokenizer_files import folder_of

from quire import pack_corpus, pack_dataset
from quire.blocks import block_tokenize_fn
from quire.errors import InvalidDocument
from quire.stream import open_stream
from quire.text import giant_words
from quire.text.giant_words import giant_word
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output

TOO_LONG = giant_words.MOST + 1
GIANT = "fine " + "a" * TOO_LONG + " 1"
PROBLEM = r"has 10,000,001 consecutive letters, from character 5 on"


def kind_of(character: str) -> str:
    if character.isspace():
        return "spaces"
    if character.isdecimal():
        return "digits"
    return "letters" if character.isalpha() else "symbols"


runs = st.tuples(st.sampled_from("ab\u00e91 \n_-"), st.integers(1, 15))


@given(st.lists(runs, max_size=6), st.integers(1, 12))
def test_a_run_over_the_limit_is_found(parts, most):
    text = "".join(character * count for character, count in parts)
    expected, first = set(), 0
    for kind, run in itertools.groupby(text, kind_of):
        size = len(list(run))
        if size > most:
            expected.add(f"has {size} consecutive {kind}, from character {first} on")
        first += size
    found = giant_word(text, most)
    assert (found is None) == (not expected)
    assert found is None or found.partition(", but")[0] in expected


def corpus(tmp_path):
    file = tmp_path / "a.jsonl"
    texts = ["one text", GIANT, "another"]
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file


@pytest.mark.parametrize("engine", ["fast", "tokenizers"])
def test_a_corpus_drops_and_counts_it(tmp_path, engine):
    file, tokenizer = corpus(tmp_path), folder_of("small-qwen3")
    options = {"max_length": 32, "tokenizer_engine": engine}
    with pytest.raises(
        InvalidDocument, match=rf"a\.jsonl: record 1 \(byte 21\) {PROBLEM}.*_records is 0"
    ):
        pack_corpus([file], tmp_path / "none", tokenizer, **options)
    manifest = pack_corpus([file], tmp_path / "out", tokenizer, max_bad_records=1, **options)
    assert manifest.ledger.documents.dropped["bad_record"] == 1
    assert verify_inputs(verify_output(tmp_path / "out"), [file], tokenizer).ok


def test_bytes_have_no_words(tmp_path):
    manifest = pack_corpus([corpus(tmp_path)], tmp_path / "out", "byte", max_length=1 << 20)
    assert manifest.ledger.tokens.input > TOO_LONG


def test_a_text_that_is_cut_before_it_is_packed(tmp_path):
    file, tokenizer = corpus(tmp_path), folder_of("small-qwen3")
    out = tmp_path / "out"
    pack_corpus([file], out, tokenizer, max_length=32, truncate_at="aaa")
    assert verify_inputs(verify_output(out), [file], tokenizer).ok


def test_a_dataset_drops_and_counts_it():
    texts = [{"text": text} for text in ("one text", GIANT, "another")]
    with pytest.raises(InvalidDocument, match=f"record 1 {PROBLEM}"):
        pack_dataset(texts, folder_of("small-qwen3"), max_length=32)
    _, ledger = pack_dataset(
        texts, folder_of("small-qwen3"), max_length=32, max_bad_records=1, return_ledger=True
    )
    assert ledger.check().documents.dropped == {"bad_record": 1}


def test_a_conversation_drops_and_counts_it():
    records = [
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": text}]}
        for text in ("b c", GIANT)
    ]
    _, ledger = pack_dataset(
        records,
        word_tokenizer(),
        max_length=32,
        messages_column="messages",
        tokenizer_engine="tokenizers",
        max_bad_records=1,
        return_ledger=True,
    )
    assert ledger.check().documents.dropped == {"bad_record": 1}


def test_a_map_function_refuses_it():
    with pytest.raises(InvalidDocument, match=f"document 1 {PROBLEM}.*split or remove"):
        block_tokenize_fn({"text": ["one", GIANT]}, word_tokenizer(), feature="text", max_length=32)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stream_drops_and_counts_it(tmp_path, workers):
    options = {"max_length": 8, "batch_size": 1, "repeat": False, "num_workers": workers}
    given = {"files": str(corpus(tmp_path)), "tokenizer": folder_of("small-qwen3"), **options}
    with open_stream(**given) as stream, pytest.raises(InvalidDocument, match=PROBLEM):
        list(stream)
    with open_stream(**given, max_bad_records=1) as stream:
        assert len(list(stream)) > 0
        assert stream.ledger.check().documents.dropped["bad_record"] == 1
