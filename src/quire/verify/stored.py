"""The fragments of a packed output by document, one shard in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile
from quire.storage import AnyPath, local_copy
from quire.verify.manifest import is_indexed
from quire.verify.recount import Ints, list_column


class Fragment(NamedTuple):
    """A part of a document."""

    offset: int
    """Its first token in the document."""
    columns: dict[str, npt.NDArray[Any]]


class _Shard(NamedTuple):
    """Fragments in the order of documents."""

    documents: Ints
    offsets: Ints
    starts: Ints
    stops: Ints
    columns: dict[str, npt.NDArray[Any]]
    """The values of all fragments; a fragment is the part from its start to its stop."""


class StoredDocuments:
    """The documents of an output, to be asked for in input order."""

    def __init__(self, out: AnyPath, manifest: Mapping[str, Any], columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._shards = iter([out / shard["file"] for shard in manifest["shards"]])
        self._indexed = is_indexed(manifest)
        special = manifest["ledger"]["tokens"]["special"]
        self._prefix = int(not self._indexed and special > 0)
        self._shard: _Shard | None = None
        self._next = 0
        self.not_asked_for = 0
        """Fragments that belong to no document of the inputs."""
        self.openings: set[int] = set()
        """The tokens that open fragments, where BOS does."""

    def take(self, document: int) -> list[Fragment]:
        """The fragments of a document."""
        while self._shard is None or self._next == len(self._shard.documents):
            if not self._load_next():
                return []
        shard = self._shard
        first, stop = np.searchsorted(shard.documents, [document, document + 1]).tolist()
        if first < self._next:
            return []
        self.not_asked_for += first - self._next
        self._next = stop
        return [self._fragment(shard, number) for number in range(first, stop)]

    def finish(self) -> int:
        """Fragments of documents that the inputs do not have."""
        while self._shard is not None:
            self.not_asked_for += len(self._shard.documents) - self._next
            if not self._load_next():
                break
        return self.not_asked_for

    def _fragment(self, shard: _Shard, number: int) -> Fragment:
        part = slice(int(shard.starts[number]), int(shard.stops[number]))
        columns = {name: values[part] for name, values in shard.columns.items()}
        return Fragment(int(shard.offsets[number]), columns)

    def _load_next(self) -> bool:
        path = next(self._shards, None)
        self._shard, self._next = None, 0
        if path is None:
            return False
        with local_copy(path) as local:
            self._shard = self._read(local)
        return True

    def _read(self, path: Path) -> _Shard:
        table = pq.read_table(path, partitioning=None)
        columns = {name: _values(table, name) for name in self._columns}
        lengths = _lists(table, self._columns[0])[1]
        ends = np.cumsum(lengths)
        if self._indexed:
            documents = table["document_id"].to_numpy().astype(np.int64)
            return _Shard(documents, np.zeros(len(ends), np.int64), ends - lengths, ends, columns)
        starts, counts = _lists(table, "document_starts")
        begins = starts + np.repeat(ends - lengths, counts)
        stops = np.append(begins[1:], ends[-1:])
        self.openings |= set(columns["input_ids"][begins].tolist()) if self._prefix else set()
        documents, offsets = _values(table, "document_ids"), _values(table, "document_offsets")
        order = np.lexsort((offsets, documents))
        starts = begins + self._prefix
        return _Shard(documents[order], offsets[order], starts[order], stops[order], columns)


def _lists(table: pa.Table, name: str) -> tuple[npt.NDArray[Any], Ints]:
    pair = list_column(table[name])
    if pair is None:
        raise CorruptFile(f"column {name} holds other values than lists of numbers")
    return pair


def _values(table: pa.Table, name: str) -> npt.NDArray[Any]:
    return _lists(table, name)[0]


def gaps(length: int, fragments: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(start, stop) of every part of a document that is in no fragment.

    >>> list(gaps(10, [(2, 5), (4, 7)]))
    [(0, 2), (7, 10)]
    """
    reached = 0
    for start, stop in sorted(fragments):
        if start > reached:
            yield reached, start
        reached = max(reached, stop)
    if reached < length:
        yield reached, length
