"""Partitions contain every record once, for any files."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.corpus.corpus import Corpus, default_partition_size
from quire.corpus.inputs import find_inputs
from quire.corpus.options import CorpusOptions
from quire.corpus.partitions import make_partitions
from quire.errors import InvalidOption
from tests.corpus.corpora import hashes, jsonl, pack, texts


def read(paths, **options):
    options = CorpusOptions(max_length=8, **{"partition_size": 4 << 20, **options})
    files = find_inputs(paths)
    corpus = Corpus(files=files, options=options, columns={})
    partitions = make_partitions(corpus)
    found = [
        [
            (batch.file, record, value)
            for batch in corpus.batches(partition.spans)
            for record, value in zip(batch.records, batch.values, strict=True)
        ]
        for partition in partitions
    ]
    return partitions, found


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=8), max_size=12), st.integers(1, 200))
def test_every_line_is_in_one_partition_with_its_number(tmp_path_factory, values, size):
    path = jsonl(tmp_path_factory.mktemp("corpus") / "a.jsonl", values)
    _, found = read([path], partition_size=size)
    assert [item for part in found for item in part] == [(0, i, v) for i, v in enumerate(values)]


@pytest.mark.parametrize("group", [1, 7, 100])
@pytest.mark.parametrize("size", [50, 500, 10_000])
def test_every_row_of_a_parquet_file_is_in_one_partition(tmp_path, group, size):
    values = texts(60)
    pq.write_table(pa.table({"n": range(60), "text": values}), tmp_path / "a.parquet", group)
    _, found = read([tmp_path / "a.parquet"], partition_size=size)
    assert [item for part in found for item in part] == [(0, i, v) for i, v in enumerate(values)]


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("size", [50, 10_000])
def test_both_forms_of_arrow_files_are_read(tmp_path, form, size):
    values = texts(40)
    table = pa.table({"text": values})
    new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with new(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    _, found = read([tmp_path / "a.arrow"], partition_size=size)
    assert [item for part in found for item in part] == [(0, i, v) for i, v in enumerate(values)]


def test_small_files_share_a_partition_and_large_ones_are_cut(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(name * 10)
    jsonl(tmp_path / "d.jsonl", ["x" * 20] * 10)
    partitions, found = read([tmp_path], partition_size=100)
    assert [item[:2] for item in found[0]] == [(0, 0), (1, 0), (2, 0)]
    assert [len(part) for part in found[1:]] == [3, 2, 3, 2]
    assert all(partition.size <= 100 for partition in partitions)


def test_a_compressed_file_is_one_span_that_is_cut_as_it_is_read(tmp_path):
    data = "".join(json.dumps({"text": t}) + "\n" for t in texts(50)).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    partitions, found = read([tmp_path / "a.jsonl.gz"], partition_size=200)
    assert len(partitions) == 1
    assert [value for _, _, value in found[0]] == texts(50)


def test_the_number_of_partitions_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("quire.corpus.partitions.MAX_PARTITIONS", 3)
    with pytest.raises(InvalidOption, match=r"partition_size=10 cuts the corpus into .* raise it"):
        read([jsonl(tmp_path / "a.jsonl", texts(20))], partition_size=10)


@pytest.mark.parametrize(
    ("megabytes", "expected"), [(0, 4), (64, 4), (80, 5), (4096, 256), (9000, 256)]
)
def test_a_partition_is_a_sixteenth_of_the_inputs_within_bounds(megabytes, expected):
    assert default_partition_size(megabytes << 20) == expected << 20


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_size_of_partitions_follows_from_the_inputs_only(tmp_path, monkeypatch, workers):
    """Small inputs were one partition, so a second worker had nothing to do."""
    monkeypatch.setattr("quire.corpus.corpus._LEAST", 100)
    path = jsonl(tmp_path / "a.jsonl", texts(200))
    result = pack(path, tmp_path / "out", workers=workers)
    assert result.manifest["options"]["partition_size"] == -(-path.stat().st_size // 16)
    assert len(result.manifest["shards"]) == 16
    pack(path, tmp_path / "alone", workers=1)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "alone")
    monkeypatch.setattr("quire.corpus.corpus._LEAST", 10**9)
    assert pack(path, tmp_path / "out", resume=True).was_complete, "what was recorded is kept"


def test_the_default_size_follows_the_text_not_the_compressed_file(tmp_path, monkeypatch):
    monkeypatch.setattr("quire.corpus.corpus._LEAST", 1)
    plain, packed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    plain.write_text('{"text": "' + "ab" * 800 + '"}\n')
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    table = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": [str(n) * 50 for n in range(400)]}), table)
    options = CorpusOptions(max_length=64)
    sizes = [
        Corpus.open([path], "byte", options).options.partition_size
        for path in (plain, packed, table)
    ]
    text = pq.read_metadata(table).row_group(0).column(0).total_uncompressed_size
    assert sizes == [-(-1613 // 16), -(-packed.stat().st_size * 4 // 16), -(-text // 16)]
    assert text > 2 * table.stat().st_size
