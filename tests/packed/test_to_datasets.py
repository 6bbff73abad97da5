"""`PackedDataset.to_datasets`: the same rows for everything that takes a `datasets.Dataset`."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from datasets import Dataset

import quire


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("to-datasets")
    for part in "ab":
        texts = [f"{part} {n} " * (n % 7 + 1) for n in range(400)]
        lines = [json.dumps({"text": text}) + "\n" for text in texts]
        (folder / f"{part}.jsonl").write_text("".join(lines))
    files = [folder / "a.jsonl", folder / "b.jsonl"]
    quire.pack_corpus(files, folder / "out", "byte", max_length=64, partition_size=1 << 16)
    quire.pack_corpus(files, folder / "index", "byte", max_length=64, index_only=True)
    return folder


def plain(rows):
    return [{name: list(values) for name, values in row.items()} for row in rows]


def listed(rows: quire.PackedDataset):
    return [{name: values.tolist() for name, values in row.items()} for row in rows]


def test_the_rows_are_those_of_the_packed_dataset(packed):
    rows = quire.PackedDataset(packed / "out")
    found = rows.to_datasets()
    assert isinstance(found, Dataset)
    assert plain(found) == listed(rows)


def test_no_token_is_copied_into_memory(packed):
    rows = quire.PackedDataset(packed / "out")
    before = pa.total_allocated_bytes()
    found = rows.to_datasets()
    assert pa.total_allocated_bytes() - before < 1000
    assert len(pickle.dumps(found)) < 10_000 < 4 * rows.ledger.tokens.emitted


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows,
        lambda rows: rows.select(range(5, 9)),
        lambda rows: rows.remove_columns(["document_starts"]),
        lambda rows: rows.rename_column("input_ids", "tokens").shuffle(seed=3),
        lambda rows: rows.shard(3, 1),
    ],
)
def test_another_process_gets_the_same_rows(packed, change):
    changed = change(quire.PackedDataset(packed / "out").to_datasets())
    again = pickle.loads(pickle.dumps(changed))  # noqa: S301 - made here
    assert plain(again) == plain(changed)


def test_boundaries_come_in_the_forms_that_trainers_read(packed):
    rows = quire.PackedDataset(packed / "out")
    found = rows.to_datasets(position_ids=True, seq_lengths=True)
    for row, mine in zip(found, rows, strict=True):
        edges = [*mine["document_starts"].tolist(), len(mine["input_ids"])]
        lengths = [stop - start for start, stop in pairwise(edges)]
        assert row["seq_lengths"] == lengths
        assert row["position_ids"] == [place for length in lengths for place in range(length)]


def test_rows_of_a_plan_are_gathered(packed, monkeypatch, tmp_path):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    rows = quire.PackedDataset(packed / "index")
    assert plain(rows.to_datasets()) == listed(rows)


def test_maps_of_two_datasets_are_not_mixed_up(packed):
    rows = quire.PackedDataset(packed / "out")
    prints = {
        rows.to_datasets()._fingerprint,
        rows.to_datasets(seq_lengths=True)._fingerprint,
        rows.to_datasets(position_ids=True)._fingerprint,
        quire.PackedDataset(packed / "out", columns=["input_ids"]).to_datasets()._fingerprint,
    }
    assert len(prints) == 4
    assert rows.to_datasets()._fingerprint in prints
