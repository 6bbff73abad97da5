"""block_tokenize_fn as the function of `datasets.map`, in all its forms."""

from __future__ import annotations

from functools import partial

import pytest
import tokenizers
from datasets import Dataset, IterableDataset, disable_progress_bars
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from quire import block_tokenize_fn
from quire.blocks import BlockOptions, pack_texts
from quire.errors import InvalidDocument
from tests.text.literal_tokenizer import LiteralTokenizer
from tests.tokenizer_files import folder_of, load

TEXTS = [f"{'A quire of sheets, ' * (n % 7)}number {n}." for n in range(40)]
OPTIONS = {"max_length": 48, "packed": True, "packing_strategy": "best_fit", "stride": 2}


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    disable_progress_bars()


@pytest.fixture
def dataset() -> Dataset:
    return Dataset.from_dict({"text": TEXTS, "number": list(range(len(TEXTS)))})


def call(tokenizer="byte", texts=TEXTS, **options) -> dict[str, list[list[int]]]:
    return block_tokenize_fn({"text": texts}, tokenizer, "text", **{**OPTIONS, **options})


def function(tokenizer="byte", **options):
    return partial(block_tokenize_fn, tokenizer=tokenizer, feature="text", **{**OPTIONS, **options})


def columns(rows) -> dict[str, list[list[int]]]:
    return {name: list(rows[name]) for name in ("input_ids", "document_starts")}


def joined(*parts) -> dict[str, list[list[int]]]:
    return {name: [row for part in parts for row in part[name]] for name in parts[0]}


def test_a_partial_gives_the_rows_of_a_direct_call(dataset):
    rows = dataset.map(function(), batched=True, remove_columns=dataset.column_names)
    assert rows.column_names == ["input_ids", "document_starts"]
    assert columns(rows) == call()


def test_a_lambda_gives_the_rows_of_a_direct_call(dataset):
    rows = dataset.map(
        lambda features: block_tokenize_fn(features, "byte", "text", **OPTIONS),
        batched=True,
        remove_columns=dataset.column_names,
    )
    assert columns(rows) == call()


def test_fn_kwargs_give_the_rows_of_a_direct_call(dataset):
    rows = dataset.map(
        block_tokenize_fn,
        batched=True,
        fn_kwargs={"tokenizer": "byte", "feature": "text", **OPTIONS},
        remove_columns=dataset.column_names,
    )
    assert columns(rows) == call()


def test_every_map_batch_is_packed_separately(dataset):
    rows = dataset.map(function(), batched=True, batch_size=15, remove_columns=dataset.column_names)
    assert columns(rows) == joined(*(call(texts=TEXTS[at : at + 15]) for at in (0, 15, 30)))


def small_fast_tokenizer() -> PreTrainedTokenizerFast:
    backend = tokenizers.ByteLevelBPETokenizer()
    backend.train_from_iterator(TEXTS, show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend._tokenizer)


@pytest.mark.parametrize("make", [lambda: "byte", ByT5Tokenizer, small_fast_tokenizer])
def test_two_processes_give_the_rows_of_two_calls(dataset, make):
    tokenizer = make()
    rows = dataset.map(
        function(tokenizer), batched=True, num_proc=2, remove_columns=dataset.column_names
    )
    assert columns(rows) == joined(call(tokenizer, TEXTS[:20]), call(tokenizer, TEXTS[20:]))


def test_an_iterable_dataset_gives_the_same_rows(dataset):
    stream = dataset.to_iterable_dataset(num_shards=1)
    rows = stream.map(function(), batched=True, batch_size=15, remove_columns=["text", "number"])
    expected = joined(*(call(texts=TEXTS[at : at + 15]) for at in (0, 15, 30)))
    assert [row["input_ids"] for row in rows] == expected["input_ids"]
    assert [row["document_starts"] for row in rows] == expected["document_starts"]
    generated = IterableDataset.from_generator(lambda: ({"text": text} for text in TEXTS))
    rows = generated.map(function(), batched=True, batch_size=1000, remove_columns=["text"])
    assert [row["input_ids"] for row in rows] == call()["input_ids"]


@pytest.mark.parametrize("form", ["numpy", "pandas"])
def test_a_formatted_dataset_gives_the_same_rows(dataset, form):
    rows = dataset.with_format(form).map(
        function(), batched=True, remove_columns=dataset.column_names
    )
    assert columns(rows.with_format(None)) == call()


@pytest.mark.parametrize("name", ["path", "fast", "slow", "literal"])
def test_every_kind_of_tokenizer_works_in_map(name):
    make = {
        "path": lambda: folder_of("small-gpt2"),
        "fast": lambda: load("small-gpt2"),
        "slow": ByT5Tokenizer,
        "literal": LiteralTokenizer,
    }
    tokenizer = make[name]()
    texts = ["10 11", "20 21 22"] * 5
    dataset = Dataset.from_dict({"text": texts})
    rows = dataset.map(function(tokenizer), batched=True, remove_columns=["text"])
    assert columns(rows) == call(tokenizer, texts)


def test_a_batch_of_empty_documents_leaves_no_row_and_the_others_stay(monkeypatch):
    monkeypatch.setattr("quire.blocks._warn_of_drops", lambda *_: None)
    texts = ["", "", "number", "", ""]
    dataset = Dataset.from_dict({"text": texts})
    rows = dataset.map(function(), batched=True, batch_size=2, remove_columns=["text"])
    assert columns(rows) == call(texts=["number"])


def test_a_null_is_an_error_that_names_its_place_in_the_batch():
    holed = Dataset.from_dict({"text": ["a", None, "b"]})
    with pytest.raises(InvalidDocument, match="document 1 is NoneType but must be a string"):
        holed.map(function(), batched=True, remove_columns=["text"])


def test_a_map_that_is_not_batched_says_so(dataset):
    with pytest.raises(InvalidDocument, match=r"use map\(batched=True\)"):
        dataset.map(function(), remove_columns=dataset.column_names)


def test_the_rows_of_map_are_those_of_pack_texts(dataset):
    rows = dataset.map(function(), batched=True, remove_columns=dataset.column_names)
    packed = pack_texts(TEXTS, "byte", BlockOptions(**OPTIONS))
    assert list(rows["input_ids"]) == packed.input_ids
    packed.ledger.check()
    assert packed.ledger.documents.emitted == len(TEXTS)
