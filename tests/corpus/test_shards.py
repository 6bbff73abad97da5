"""Shards: their names, columns and bytes."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.corpus import shards
from quire.corpus.shards import open_new, shard_name, shard_schema, write_shard
from quire.errors import InvalidOption


def table_of(rows: int, width: int = 3) -> pa.Table:
    """Rows of tokens that repeat, but not at once: levels of compression differ in them."""
    tokens = np.random.default_rng(0).integers(0, 50, (rows, width)).cumsum(axis=1) % 997
    return pa.table({"input_ids": pa.array(tokens.tolist(), pa.list_(pa.int32()))})


def test_names_sort_in_input_order():
    assert shard_name(7, 0) == "shard-00007-000.parquet"
    assert shard_name(12345, 678) == "shard-12345-678.parquet"
    places = [(0, 0), (0, 1), (0, 10), (2, 0), (10, 0)]
    named = [shard_name(*place) for place in places]
    assert sorted(named) == named


def test_the_columns_are_tokens_others_starts_and_sources_in_this_order():
    columns = {"labels": "int32", "input_ids": "int64", "loss_mask": "int8"}
    assert shard_schema(columns, keep_sources=True) == pa.schema(
        {
            "input_ids": pa.list_(pa.int32()),
            "labels": pa.list_(pa.int32()),
            "loss_mask": pa.list_(pa.int8()),
            "document_starts": pa.list_(pa.int32()),
            "document_ids": pa.list_(pa.int64()),
            "document_offsets": pa.list_(pa.int64()),
        }
    )
    assert shard_schema({}, keep_sources=False) == pa.schema(
        {"input_ids": pa.list_(pa.int32()), "document_starts": pa.list_(pa.int32())}
    )


@pytest.mark.parametrize("name", ["document_ids", "document_offsets"])
def test_an_input_column_may_not_have_the_name_of_a_source_column(name):
    assert name in shard_schema({name: "int64"}, keep_sources=False).names
    with pytest.raises(InvalidOption, match=f"keep_sources writes a column '{name}'"):
        shard_schema({name: "int64"}, keep_sources=True)


def test_a_written_shard_has_the_returned_hash_and_size_and_the_given_rows(tmp_path):
    rows = table_of(200)
    digest, size = write_shard(tmp_path / "a.parquet", rows, record_length=16)
    data = (tmp_path / "a.parquet").read_bytes()
    assert (digest, size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert pq.read_table(tmp_path / "a.parquet", partitioning=None) == rows
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_the_bytes_are_those_of_parquet_with_explicit_settings(tmp_path):
    """Another level, page or version gives other bytes, so that no resumed run would match."""
    rows = table_of(6000, 100)  # more than a page
    write_shard(tmp_path / "a.parquet", rows, record_length=1 << 9)
    expected = io.BytesIO()
    pieces = pa.concat_tables([rows.slice(first, 512) for first in range(0, 6000, 512)])
    pq.write_table(
        pieces,
        expected,
        row_group_size=8192,
        compression="zstd",
        compression_level=1,
        write_batch_size=131_072,
        use_dictionary=False,
        write_statistics=False,
        version="2.6",
        data_page_version="1.0",
    )
    assert (tmp_path / "a.parquet").read_bytes() == expected.getvalue()


@pytest.mark.parametrize(
    ("record_length", "groups"),
    [(1_600_000, [2, 2, 1]), (1 << 21, [2, 2, 1]), (1 << 22, [1] * 5), (1 << 23, [1] * 5)],
)
def test_a_row_group_holds_four_million_tokens_and_at_least_one_row(
    tmp_path, record_length, groups
):
    write_shard(tmp_path / "a.parquet", table_of(5), record_length)
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == groups
    column = metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"
    assert set(column.encodings) == {"PLAIN", "RLE"}
    assert not column.is_stats_set
    assert metadata.format_version == "2.6"


class Slow:
    """A file that takes seven bytes at a time."""

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data) -> int:
        return self._file.write(data[:7])


def test_short_writes_are_completed(tmp_path, monkeypatch):
    written = write_shard(tmp_path / "a.parquet", table_of(50), 16)
    monkeypatch.setattr(shards, "open_new", lambda path: Slow(open_new(path)))
    assert write_shard(tmp_path / "b.parquet", table_of(50), 16) == written
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_file_is_closed_when_its_shard_is_written_or_fails(tmp_path, monkeypatch):
    opened = []

    def noted(path):
        opened.append(open_new(path))
        return opened[-1]

    monkeypatch.setattr(shards, "open_new", noted)
    write_shard(tmp_path / "a.parquet", table_of(1), 16)
    with pytest.raises(ZeroDivisionError):
        write_shard(tmp_path / "b.parquet", table_of(1), 0)
    assert [file.closed for file in opened] == [True, True]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_an_existing_file_is_not_overwritten(tmp_path):
    with open_new(tmp_path / "a") as file:
        file.write(b"quire")
    with pytest.raises(FileExistsError):
        open_new(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"quire"
