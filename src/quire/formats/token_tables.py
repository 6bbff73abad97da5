"""Files of tokens as tables, for the paths that read documents from files one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pyarrow as pa

from quire.errors import InvalidOption
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.format import Batch, Record, Span, batched, require_reached
from quire.formats.tables import PIECE_BYTES, Table, TableFormat
from quire.formats.token_corpus import TokenCorpus
from quire.formats.token_files import TOKENS, Ints, TokenFile
from quire.options.names import option
from quire.printable import counted
from quire.storage import AnyPath

Opener = Callable[[InputFile, Sequence[str]], AbstractContextManager[Table]]
OpenFiles = Callable[[AnyPath, Mapping[str, str], Mapping[str, Ints]], list[TokenFile]]


class TokenFormat(TableFormat):
    """Rows are documents, whose tokens are in one of several files.

    The name may have the options of a corpus, such as ``megatron:unit=documents``.
    """

    def __init__(
        self,
        name: str,
        open_files: OpenFiles,
        beside: Callable[[AnyPath], list[AnyPath]] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        scanned: list[tuple[object, TokenCorpus]] = []

        def opened(path: AnyPath) -> TokenCorpus:
            stat = path.stat()
            version = (path, stat.st_size, stat.st_mtime_ns)
            if scanned and scanned[0][0] == version:
                return scanned[0][1]
            found = TokenCorpus(name, open_files(path, options or {}, {}))
            _require_all_in_documents(path, found)
            if any(file.edges is not None for file in found.files):  # which took reading all tokens
                scanned[:] = [(version, found)]
            return found

        super().__init__(name, _opener(opened))
        self._beside = beside or (lambda path: _others(path, open_files(path, options or {}, {})))

    def read(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Batch]:
        """The documents of a span: as columns, or one by one if no columns are asked for."""
        if fields.token_columns:
            return super().read(file, span, fields)
        return batched(file, self.records(file, span, fields), fields)

    def records(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Record]:
        """The documents of a span, one by one."""
        number = span.start
        with self.opened(file) as table:
            for rows in table.rows(span):
                for value in rows.to_pylist():
                    size = 4 * len(value[TOKENS])
                    yield Record(number=number, end=number + 1, size=size, value=value)
                    number += 1

    def beside(self, path: AnyPath) -> list[AnyPath]:
        """The files that hold what this one is the index of."""
        return self._beside(path)


def _others(path: AnyPath, files: Sequence[TokenFile]) -> list[AnyPath]:
    read = dict.fromkeys(one for file in files for one in file.files)
    return [one for one in read if one != path]


def _require_all_in_documents(path: AnyPath, corpus: TokenCorpus) -> None:
    """Raise if tokens belong to no document: rows that are copied have no place to count them."""
    if left := corpus.ledger.tokens.num_dropped:
        raise InvalidOption(
            f"{path} holds {counted(left, 'token')} that belong to no document; plan it in place "
            f"with {option('index_only')}, which counts them, or make those after the last end a "
            "document with tail=keep in the format"
        )


def _opener(open_corpus: Callable[[AnyPath], TokenCorpus]) -> Opener:

    @contextmanager
    def opened(file: InputFile, names: Sequence[str]) -> Iterator[Table]:
        yield _TokenTable(file, open_corpus(file.path), names)

    return opened


class _TokenTable:
    """The documents of one file of tokens, or of those that it lists."""

    def __init__(self, file: InputFile, corpus: TokenCorpus, names: Sequence[str]) -> None:
        self._corpus = corpus
        self._file, self._lengths = file, corpus.lengths()
        self._names = list(names) or list(self._corpus.columns)

    @property
    def schema(self) -> pa.Schema:
        types = self._corpus.columns.items()
        return pa.schema({name: pa.list_(_arrow_type(kind)) for name, kind in types})

    def sizes(self) -> list[tuple[int, int]]:
        widths = [self.schema.field(name).type.value_type.bit_width // 8 for name in self._names]
        return [(len(self._lengths), int(self._lengths.sum(dtype=np.int64)) * sum(widths))]

    def rows(self, span: Span) -> Iterator[pa.RecordBatch]:
        stop = len(self._lengths) if span.stop is None else min(span.stop, len(self._lengths))
        require_reached(self._file, len(self._lengths), span)
        ends = np.cumsum(self._lengths[span.start : stop], dtype=np.int64)
        first = span.start
        while first < stop:
            before = int(ends[first - span.start - 1]) if first > span.start else 0
            held = np.searchsorted(ends, before + PIECE_BYTES // 4, side="right")
            last = min(stop, max(first + 1, span.start + int(held)))
            yield self._batch(np.arange(first, last))
            first = last

    def _batch(self, documents: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.RecordBatch:
        lengths = self._lengths[documents].astype(np.int64)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        schema = self.schema
        lists = [
            pa.ListArray.from_arrays(
                offsets,
                pa.array(
                    self._corpus.gather(name, documents, np.zeros_like(lengths), lengths),
                    schema.field(name).type.value_type,
                ),
            )
            for name in self._names
        ]
        return pa.RecordBatch.from_arrays(lists, self._names)


def _arrow_type(kind: str) -> pa.DataType:
    return pa.from_numpy_dtype(np.dtype(kind))
