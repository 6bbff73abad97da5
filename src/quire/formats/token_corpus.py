"""`TokenCorpus`: the documents of several token files as one, and any part of any of them."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.errors import CorruptFile, InvalidDocument, InvalidOption, StorageError
from quire.formats.fingerprints import fingerprint_of_file
from quire.formats.token_files import TOKENS, Array, Ints, Part, TokenFile
from quire.ledger import Ledger
from quire.printable import counted
from quire.seals import canonical
from quire.storage import AnyPath, RemotePath, each

FILE_SHIFT = 40
"""A document id is its number in its file, and from this bit on the number of the file."""
FEW = 16
"""Parts of documents for which a loop is faster than arrays."""
_LARGEST = np.iinfo(np.int32).max
_INT32 = np.dtype(np.int32)
_MANY = 1 << 14
_least = np.minimum.reduce


class _BadId(Exception):
    """A token is not from 0 to 2^31 - 1."""


class TokenCorpus:
    """Documents of tokens in files of another system, read in place.

    Document numbers go through all files in order.
    """

    def __init__(self, name: str, files: Sequence[TokenFile]) -> None:
        self.format = name
        """How `open_corpus` reads it again: the name of the format and its options."""
        self.files = list(files)
        self._firsts = np.cumsum([0, *(len(file) for file in files)])
        self._edges: list[int] = self._firsts.tolist()
        self._require_one_kind()

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __repr__(self) -> str:
        return f"TokenCorpus({counted(len(self), 'document')} of {self.format})"

    @cached_property
    def columns(self) -> dict[str, str]:
        """The names of the columns, and the types of their values in rows."""
        first = self.files[0].columns
        return {n: "int32" if n == TOKENS else str(c.dtype) for n, c in first.items()}

    @cached_property
    def ledger(self) -> Ledger:
        """The tokens that belong to no document."""
        return sum((file.ledger for file in self.files), Ledger())

    def lengths(self) -> Ints:
        """The tokens of every document."""
        if len(self.files) == 1:
            return self.files[0].lengths
        return np.concatenate([file.lengths for file in self.files])

    def tokens(self, document: int, start: int = 0, stop: int | None = None) -> Array:
        """Tokens ``start:stop`` of a document."""
        return self.values(TOKENS, document, start, stop)

    def values(self, name: str, document: int, start: int = 0, stop: int | None = None) -> Array:
        """The values of a column for tokens ``start:stop`` of a document."""
        if not 0 <= document < len(self):
            raise IndexError(f"there is no document {document}: there are {len(self)}")
        file = bisect_right(self._edges, document) - 1
        length = int(self.files[file].lengths[document - self._edges[file]])
        first, last, _ = slice(start, stop).indices(length)
        return self.gather_few(name, [(document, first, max(first, last))])

    def iterate(self, first: int = 0) -> Iterator[tuple[int, Array]]:
        """(number, tokens) of every document from one on."""
        return ((number, self.tokens(number)) for number in range(first, len(self)))

    def gather(self, name: str, documents: Ints, starts: Ints, stops: Ints) -> Array:
        """The values of parts of documents, end to end and read-only; tokens are int32, checked."""
        try:
            return self._values(name, self._parts(name, documents, starts, stops))
        except _BadId:
            spans = zip(documents.tolist(), starts.tolist(), stops.tolist(), strict=True)
            raise self._bad_id(list(spans)) from None

    def gather_few(self, name: str, spans: Sequence[tuple[int, int, int]]) -> Array:
        """As `gather`, of (document, start, stop): faster for up to `FEW` of them."""
        try:
            return self._values(name, self._few_parts(name, spans))
        except _BadId:
            raise self._bad_id(spans) from None

    def document_ids(self, documents: Ints) -> npt.NDArray[np.int64]:
        """The ids by which rows name documents: file and number in it."""
        if len(self.files) == 1:
            return documents.astype(np.int64)
        files = np.searchsorted(self._firsts, documents, side="right") - 1
        ids: npt.NDArray[np.int64] = (files << FILE_SHIFT) + documents - self._firsts[files]
        return ids

    def fingerprint(self) -> str:
        """A hash of the format and of samples of every file."""
        content = {"format": self.format, "files": [e["fingerprint"] for e in self.entries()]}
        return hashlib.sha256(canonical(content).encode()).hexdigest()

    def entries(self) -> list[dict[str, Any]]:
        """Every file that was read, with its size and fingerprint, as manifests record it."""
        paths = list(dict.fromkeys(path for file in self.files for path in file.files))
        remote = any(isinstance(path, RemotePath) for path in paths)
        found = each(_fingerprint, paths, at_once=remote)
        return [
            {"path": str(path.absolute()), "bytes": size, "fingerprint": fingerprint}
            for path, (fingerprint, size, _) in zip(paths, found, strict=True)
        ]

    def _values(self, name: str, parts: Sequence[Part]) -> Array:
        found: Array = np.frombuffer(b"".join(parts), self.files[0].columns[name].dtype)
        if name != TOKENS:
            return found
        if _has_bad_id(found):
            raise _BadId
        if found.dtype != _INT32:
            found = found.astype(np.int32)
            found.flags.writeable = False
        return found

    def _few_parts(self, name: str, spans: Sequence[tuple[int, int, int]]) -> list[Part]:
        if len(self.files) == 1:
            return self.files[0].columns[name].few(spans)
        parts: list[Part] = []
        for document, start, stop in spans:
            file = bisect_right(self._edges, document) - 1
            inside = document - self._edges[file]
            parts += self.files[file].columns[name].few([(inside, start, stop)])
        return parts

    def _parts(self, name: str, documents: Ints, starts: Ints, stops: Ints) -> list[Part]:
        if len(self.files) == 1:
            return self.files[0].columns[name].many(documents, starts, stops)
        numbers = np.searchsorted(self._firsts, documents, side="right") - 1
        inside = documents - self._firsts[numbers]
        parts: list[Part] = [b""] * len(documents)
        for number in np.unique(numbers).tolist():
            which = np.flatnonzero(numbers == number)
            column = self.files[number].columns[name]
            found = column.many(inside[which], starts[which], stops[which])
            for at, part in zip(which.tolist(), found, strict=True):
                parts[at] = part
        return parts

    def _bad_id(self, spans: Sequence[tuple[int, int, int]]) -> InvalidDocument:
        dtype = self.files[0].columns[TOKENS].dtype
        every = (np.frombuffer(part, dtype) for part in self._few_parts(TOKENS, spans))
        (document, start, _), values = next(
            pair for pair in zip(spans, every, strict=True) if _has_bad_id(pair[1])
        )
        plain = values.tolist()
        where = next(at for at, value in enumerate(plain) if not 0 <= value <= _LARGEST)
        file = bisect_right(self._edges, document) - 1
        return InvalidDocument(
            f"{self.files[file].path}: token {start + where} of document "
            f"{document - self._edges[file]} is {plain[where]}, but ids are from 0 to {_LARGEST}; "
            "repair the file, or name its type"
        )

    def _require_one_kind(self) -> None:
        kinds = [{n: str(c.dtype) for n, c in file.columns.items()} for file in self.files]
        for file, kind in zip(self.files, kinds, strict=True):
            if kind != kinds[0]:
                raise InvalidOption(
                    f"{file.path} holds {_shown(kind)}, but {self.files[0].path} holds "
                    f"{_shown(kinds[0])}; files of one corpus come from one tokenizer: pack them "
                    "separately"
                )
        seen: dict[AnyPath, AnyPath] = {}
        for path in (file.path for file in self.files):
            place = path if isinstance(path, RemotePath) else path.resolve()
            if place in seen:
                raise InvalidOption(f"{path} and {seen[place]} are the same file; name it once")
            seen[place] = path


def _fingerprint(path: AnyPath) -> tuple[str, int, int]:
    try:
        return fingerprint_of_file(path)
    except StorageError:
        raise
    except OSError as error:
        raise CorruptFile(f"{path} cannot be read: {error.strerror}; restore it") from error


def _shown(kind: Mapping[str, str]) -> str:
    return ", ".join(f"{name} of type {dtype}" for name, dtype in kind.items())


def _has_bad_id(values: Array) -> bool:
    dtype = values.dtype
    if not len(values):
        return False
    if dtype == _INT32:
        if len(values) < _MANY:
            return bool(values.item(values.argmin()) < 0)  # has lower fixed costs than a minimum
        return bool(_least(values) < 0)
    if dtype.kind == "u" and dtype.itemsize < 4:
        return False
    return bool(values.max() > _LARGEST or values.min() < 0)
