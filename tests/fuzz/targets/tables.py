"""Arrow and parquet files of others, with wrong offsets, lengths and pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from quire.corpus.inputs import find_inputs, read_span
from quire.corpus.options import CorpusOptions
from quire.dataset import pack_dataset
from quire.formats.bad_records import BadRecords
from quire.formats.format import Span
from quire.formats.token_columns import documents_from_columns
from quire.view.sources import open_rows
from tests.fuzz.mutation import NUMBERS, mutated_bytes
from tests.fuzz.target import Subject, Target, by_name

_WHOLE = pa.table({"text": ["a", "bc"], "input_ids": [[1, 2], [3]], "labels": [[1, 2], [3]]})
_TABLE = pa.table(
    {
        "text": pa.array(["a document", "", "naïve 🙂", None, "x" * 40]),
        "input_ids": pa.array([[1, 2, 3], [], [4], None, [5, 6, 7, 8]], pa.list_(pa.int32())),
        "labels": pa.array([[1, -100, 3], [], [4], [], [5, 6, 7, 8]], pa.list_(pa.int64())),
    }
)


def _arrow_bytes(as_stream: bool, table: pa.Table = _TABLE) -> bytes:
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_stream if as_stream else pa.ipc.new_file
    with make(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _parquet_bytes(table: pa.Table = _TABLE, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def _read_file(file: Path) -> str | None:
    """As text, and as tokens with another column."""
    (found,) = find_inputs([file])
    span = Span(file=0, start=0, stop=None, first_record=0, size=found.size)
    if not {"text", "input_ids", "labels"} <= set(found.format.schema(found).names):
        return "no such column"
    bad = 0
    for batch in read_span(found, span, CorpusOptions(max_length=8), {}):
        bad += len(batch.bad)
    columns = {"input_ids": "int32", "labels": "int64"}
    options = CorpusOptions(max_length=8, pretokenized=True)
    for batch in read_span(found, span, options, columns):
        documents = documents_from_columns(batch.values, bad=BadRecords(len(batch.values), 9))
        assert documents.lengths.sum() >= 0
        bad += len(batch.records) - len(documents.lengths)
    return "bad record" if bad else None


def _files(name: str, seeds: Callable[[], list[bytes]]) -> Callable[[Path], Subject]:
    def prepare(folder: Path) -> Subject:
        whole = seeds()
        file = folder / name

        def read(data: bytes) -> str | None:
            file.write_bytes(data)
            return _read_file(file)

        return Subject(
            make=lambda choose: mutated_bytes(choose, choose.choice(whole), whole), read=read
        )

    return prepare


def _hostile_table(_folder: Path) -> Subject:
    """A table in memory whose lists point anywhere, as a mapped file gives it."""

    def make(choose: Random) -> tuple[list[int], list[int], bool]:
        offsets = [0, 3, 3, 7]
        for _ in range(choose.choice((0, 1, 1, 2))):
            far = choose.choice(NUMBERS) % 2**32 - 2**31
            near = choose.choice((-1, 0, 1, 2, 5, 7, 8, 100))
            offsets[choose.randrange(4)] = far if choose.random() < 0.4 else near
        tokens = [choose.choice((1, 2, 3, 0, -1, 2**31 - 1)) for _ in range(7)]
        return offsets, tokens, choose.random() < 0.5

    def read(given: tuple[list[int], list[int], bool]) -> str | None:
        offsets, tokens, is_large = given
        kind = pa.large_list(pa.int32()) if is_large else pa.list_(pa.int32())
        index = pa.array(offsets, pa.int64() if is_large else pa.int32()).buffers()[1]
        values = pa.array(tokens, pa.int32())
        try:
            lists = pa.Array.from_buffers(kind, 3, [None, index], children=[values])
        except pa.ArrowInvalid:
            return "no array"
        pack_dataset(pa.table({"input_ids": lists}), max_length=4)
        return None

    return Subject(make=make, read=read)


def _view(folder: Path) -> Subject:
    """What `quire inspect` is shown: rows in a file of any kind."""
    columns = {"input_ids": [[5, 6, 7], [8]], "document_starts": [[0, 2], [0]], "t": ["a", "é"]}
    rows = pa.table(columns)
    text = b'{"input_ids": [5, 6, 7], "document_starts": [0, 2]}\n{"input_ids": [8]}\n'
    seeds = {
        "a.arrow": [_arrow_bytes(False, rows), _arrow_bytes(True, rows)],
        "a.parquet": [_parquet_bytes(rows), _parquet_bytes(rows, compression="none")],
        "a.jsonl": [text],
    }

    def make(choose: Random) -> tuple[str, bytes]:
        name = choose.choice(list(seeds))
        return name, mutated_bytes(choose, choose.choice(seeds[name]), seeds[name])

    def read(given: tuple[str, bytes]) -> None:
        file = folder / given[0]
        file.write_bytes(given[1])
        for row in open_rows(file, "byte").views(0, 4):
            str(row)

    return Subject(make=make, read=read)


TARGETS = by_name(
    Target(
        name="arrow_input",
        prepare=_files(
            "a.arrow", lambda: [_arrow_bytes(False), _arrow_bytes(True), _arrow_bytes(True, _WHOLE)]
        ),
    ),
    Target(
        name="parquet_input",
        prepare=_files(
            "a.parquet",
            lambda: [
                _parquet_bytes(write_page_checksum=True),
                _parquet_bytes(_WHOLE, write_page_checksum=True),
                _parquet_bytes(compression="none", use_dictionary=False),
                _parquet_bytes(compression="zstd", data_page_version="2.0", row_group_size=2),
            ],
        ),
    ),
    Target(name="hostile_offsets", prepare=_hostile_table),
    Target(name="view", prepare=_view),
)
