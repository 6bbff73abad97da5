"""Every format is read by corpora and by streams."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest

from quire.errors import InvalidState
from quire.formats import format_of
from quire.formats.fields import Fields
from quire.formats.files import find_files
from quire.formats.format import Record, Span, batched
from quire.stream.options import StreamSource
from quire.stream.sources import open_source
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.corpus.corpora import pack

TEXTS = ["one", "two", "drei"]


def arrow_file(path, values):
    table = pa.table({"text": values})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def opened(path):
    return open_source(StreamSource(backend="files", files=(str(path),)))


def read_all(shard):
    records = []
    while True:
        try:
            records.append(shard.next())
        except StopIteration:
            return records


def test_arrow_files_are_streamed_from_any_row(tmp_path):
    shards = opened(arrow_file(tmp_path / "a.arrow", TEXTS))
    for row in range(len(TEXTS) + 1):
        assert read_all(shards.open(0, row)) == TEXTS[row:]
    with pytest.raises(InvalidState, match="has 3 rows, but 4 were read from it"):
        shards.open(0, 4)


def test_a_folder_is_streamed_in_the_order_of_names(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name)
    assert opened(tmp_path).names == ["a.txt 5", "b.txt 5"]


def test_compressed_text_is_packed_and_verified(tmp_path):
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(b"a text\n"))
    pack(file, tmp_path / "out")
    report = verify_output(tmp_path / "out")
    verify_inputs(report, [file], "byte")
    assert report.ok and report.compared == 1


def test_records_before_damage_are_delivered_first(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b"}\n')
    (found,) = find_files([file])

    def failing():
        yield Record(number=0, end=14, size=14, value={"text": "a"})
        raise OSError(5, "Input/output error")

    batches = batched(found, failing(), Fields())
    assert next(batches).values == ["a"]
    with pytest.raises(OSError, match="Input/output error"):
        next(batches)


def test_batches_know_where_every_record_ends(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "a"}\n\n{\n{"text": "b"}\n')
    (found,) = find_files([file])
    (batch,) = found.read(Span(), Fields())
    assert [(number, end) for number, end, _ in batch.in_order()] == [(0, 14), (2, 17), (3, 31)]
    (rest,) = found.read(Span(start=17, first_record=3), Fields())
    assert (rest.records, rest.values) == ([3], ["b"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", ("jsonl", None)),
        ("a.NDJSON.zstd", ("jsonl", "zstd")),
        ("a.text.gz", ("txt", "gzip")),
        ("a.parquet", ("parquet", None)),
    ],
)
def test_the_suffix_decides_the_format(name, expected):
    found, compression = format_of(name)
    assert (found.name, compression) == expected


@pytest.mark.parametrize("name", ["a.parquet.gz", "a.arrow.zst", "a.gz", "a", "jsonl", "a.pkl"])
def test_other_suffixes_have_no_format(name):
    assert format_of(name)[0] is None
