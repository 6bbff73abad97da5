"""Tokens where another system wrote them: mapped from local files, requested from stores.

A `TokenFile` says where each document of one file is; a `TokenCorpus` joins several and reads any
part of any document. No token is read to plan: only lengths are, which most formats have in an
index.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import CorruptFile, InvalidDocument, InvalidOption, StorageError
from quire.formats.fingerprints import fingerprint_of_file
from quire.ledger import Ledger, TokenTally
from quire.printable import counted
from quire.seals import canonical
from quire.storage import AnyPath, RemotePath, each

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.integer]
TOKENS = "input_ids"
FILE_SHIFT = 40
"""A document id is its number in its file, and from this bit on the number of the file."""
_LARGEST = np.iinfo(np.int32).max
_INT32 = np.dtype(np.int32)
_FEW = 16
"""Parts of documents for which a loop is faster than arrays."""
_AT_A_TIME = 1 << 20
"""Documents whose places are checked at once."""
_WIDER = ("uint32", "int64", "uint64")
_TOKEN_TYPES = ("uint8", "int8", "uint16", "int16", "int32", *_WIDER)


class TokenBytes:
    """The bytes of a file, mapped into memory, or requested from a store when they are read."""

    def __init__(self, path: AnyPath, held_in: Path | None = None) -> None:
        self.path = path
        """The file as the user knows it; its bytes may be ``held_in`` another one."""
        self._mapped: Array | None = None
        file = held_in or path
        try:
            self.size = file.stat().st_size
            if not isinstance(file, RemotePath):
                self._mapped = np.zeros(0, np.uint8)
                if self.size:  # an empty file cannot be mapped
                    self._mapped = np.memmap(file, np.uint8, "r").view(np.ndarray)
        except StorageError:
            raise
        except OSError as error:
            raise CorruptFile(
                f"{path} cannot be read: {error.strerror or error}; restore it"
            ) from error

    def array(self, dtype: np.dtype[Any], offset: int, count: int) -> Array:
        """Values from a byte offset on, which the caller has checked to be inside the file."""
        size = count * dtype.itemsize
        if not 0 <= offset <= offset + size <= self.size:
            raise CorruptFile(
                f"{self.path} ends at byte {self.size}, but bytes {offset} to {offset + size} are "
                "needed; it was cut off or changed: restore it"
            )
        if self._mapped is not None:
            return self._mapped[offset : offset + size].view(dtype)
        return np.frombuffer(self._requested(offset, size), dtype)

    def here(self) -> TokenBytes:
        """The same bytes in memory, for a format that keeps its index among them."""
        if self._mapped is None:
            self._mapped = np.frombuffer(self._requested(0, self.size), np.uint8)
        return self

    def flat(self, dtype: np.dtype[Any], base: int) -> Array | None:
        """All values from a byte on; None if the file is in a store."""
        if self._mapped is None:
            return None
        return self.array(dtype, base, (self.size - base) // dtype.itemsize)

    def _requested(self, offset: int, size: int) -> bytes:
        found = cast(RemotePath, self.path).read_range(offset, size)
        if len(found) != size:
            raise CorruptFile(
                f"{self.path} gave {len(found)} of {size} bytes at byte {offset}; it was cut off: "
                "restore it"
            )
        return found


def whole_tokens(data: TokenBytes, dtype: np.dtype[Any], base: int = 0) -> int:
    """How many tokens a file holds after its header."""
    count, rest = divmod(data.size - base, dtype.itemsize)
    if rest or count < 0:
        raise CorruptFile(
            f"{data.path} has {data.size} bytes, which end inside a token of {dtype.itemsize} "
            f"bytes (tokens start at byte {base}); it was cut off, or holds another type"
        )
    return count


class Column:
    """One value per token: the type of the values, and where those of each document start."""

    def __init__(
        self, data: TokenBytes, dtype: np.dtype[Any], pointers: Ints, base: int = 0
    ) -> None:
        self.data, self.dtype, self.pointers, self.base = data, dtype, pointers, base
        """Pointers are byte offsets; all are multiples of the item size after ``base``, or
        ``base`` is -1."""

    @cached_property
    def flat(self) -> Array | None:
        """All values, if they are aligned and mapped."""
        return None if self.base < 0 else self.data.flat(self.dtype, self.base)

    def few(self, spans: Iterable[tuple[int, int, int]]) -> list[Array]:
        """The values of a few (document, start, stop): as `pieces`, without numpy's fixed costs."""
        values, place, base, size = self.flat, self.pointers.item, self.base, self.dtype.itemsize
        if values is None:
            columns = (np.array(column) for column in zip(*spans, strict=True))
            return self.pieces(*columns)
        return [
            values[(at := (place(document) - base) // size) + start : at + stop]
            for document, start, stop in spans
        ]

    def joined(self, documents: Ints, starts: Ints, stops: Ints) -> Array | None:
        """The values of many parts end to end, by a list view of Arrow; None if it cannot be.

        It is more than twice as fast as `pieces`: there is no object for each part, and Arrow keeps
        its memory.
        """
        if self._list is None:
            return None
        at = (self.pointers[documents] - self.base) // self.dtype.itemsize + starts
        lengths = np.asarray(stops - starts, dtype=np.int64)
        if int(at.min()) < 0 or int((at + lengths).max()) > len(self._list) or lengths.min() < 0:
            return None  # empty documents may be anywhere; Arrow would not check
        view = pa.LargeListViewArray.from_arrays(pa.array(at), pa.array(lengths), self._list)
        found: Array = view.flatten().to_numpy()
        return found

    @cached_property
    def _list(self) -> pa.Array | None:
        """All values as Arrow has them, without a copy."""
        return None if self.flat is None or not len(self.flat) else pa.array(self.flat)

    def pieces(self, documents: Ints, starts: Ints, stops: Ints) -> list[Array]:
        """The values of some parts of documents, without a copy if they are mapped."""
        size = self.dtype.itemsize
        if self.flat is not None:
            values = self.flat
            first = (self.pointers[documents] - self.base) // size
            ranges = zip((first + starts).tolist(), (first + stops).tolist(), strict=True)
            return [values[start:stop] for start, stop in ranges]
        at = (self.pointers[documents] + starts * size).tolist()
        wanted = list(zip(at, (stops - starts).tolist(), strict=True))
        is_remote = isinstance(self.data.path, RemotePath)
        return each(lambda one: self.data.array(self.dtype, *one), wanted, at_once=is_remote)


@dataclass(kw_only=True)
class TokenFile:
    """The documents of one file of tokens, in order."""

    path: AnyPath
    """The file that holds the tokens."""
    index: Sequence[AnyPath] = ()
    """Files beside it that were read, too; the first is the one to open, if there is any."""
    lengths: Ints
    columns: Mapping[str, Column]
    """``input_ids``, and other columns with a value per token."""
    total: int | None = None
    """Tokens in the file, if it is known; those that no document holds are counted."""
    edges: Ints | None = None
    """Where documents start, and where the last one ends, if all tokens were read to find out."""
    ledger: Ledger = field(default_factory=Ledger)
    """What no document holds."""

    def __post_init__(self) -> None:
        tokens = self.columns[TOKENS]
        if str(tokens.dtype.newbyteorder("=")) not in _TOKEN_TYPES:
            raise InvalidDocument(
                f"{self.path} holds values of type {tokens.dtype}, but token ids are integers; "
                "name a file of tokens"
            )
        for column in self.columns.values():
            _require_inside(column, self.lengths)
        left = (self.total or 0) - int(self.lengths.sum(dtype=np.int64))
        if self.total is not None and left:
            lost = TokenTally(input=left, dropped={"unterminated": left})
            self.ledger = Ledger(tokens=lost)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def named(self) -> AnyPath:
        """The file by which `open_corpus` finds the others."""
        return [*self.index, self.path][0]

    @property
    def files(self) -> list[AnyPath]:
        """All files that were read."""
        return [self.path, *self.index]


class TokenCorpus:
    """Documents of tokens in files of another system, read in place.

    Document numbers go through all files in order.
    """

    def __init__(self, name: str, files: Sequence[TokenFile]) -> None:
        self.format = name
        """How `open_corpus` reads it again: the name of the format and its options."""
        self.files = list(files)
        self._firsts = np.cumsum([0, *(len(file) for file in files)])
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
        """What no document holds."""
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
        file = int(np.searchsorted(self._firsts, document, side="right")) - 1
        length = int(self.files[file].lengths[document - int(self._firsts[file])])
        first, last, _ = slice(start, stop).indices(length)
        spans = (np.array([value]) for value in (document, first, max(first, last)))
        return self.gather(name, *spans)

    def iterate(self, first: int = 0) -> Iterator[tuple[int, Array]]:
        """(number, tokens) of every document from one on."""
        return ((number, self.tokens(number)) for number in range(first, len(self)))

    def gather(self, name: str, documents: Ints, starts: Ints, stops: Ints) -> Array:
        """The values of parts of documents, end to end; tokens are int32, and checked."""
        found = self._joined(name, documents, starts, stops)
        if name != TOKENS:
            return found
        if _has_bad_id(found):
            raise self._bad_id(self._pieces(name, documents, starts, stops), documents, starts)
        return found if found.dtype == _INT32 else found.astype(np.int32)

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

    def _joined(self, name: str, documents: Ints, starts: Ints, stops: Ints) -> Array:
        """The values end to end, in the fastest way for this many parts."""
        if not len(documents):
            return self._empty(name)
        if len(self.files) == 1:
            column = self.files[0].columns[name]
            if len(documents) <= _FEW:
                spans = zip(documents.tolist(), starts.tolist(), stops.tolist(), strict=True)
                return np.concatenate(column.few(spans))
            if (found := column.joined(documents, starts, stops)) is not None:
                return found
        return np.concatenate(self._pieces(name, documents, starts, stops))

    def _pieces(self, name: str, documents: Ints, starts: Ints, stops: Ints) -> list[Array]:
        if len(self.files) == 1:
            return self.files[0].columns[name].pieces(documents, starts, stops)
        numbers = np.searchsorted(self._firsts, documents, side="right") - 1
        inside = documents - self._firsts[numbers]
        pieces: list[Array] = [self._empty(name)] * len(documents)
        for number in np.unique(numbers).tolist():
            which = np.flatnonzero(numbers == number)
            column = self.files[number].columns[name]
            found = column.pieces(inside[which], starts[which], stops[which])
            for at, piece in zip(which.tolist(), found, strict=True):
                pieces[at] = piece
        return pieces

    def _empty(self, name: str) -> Array:
        return np.zeros(0, self.files[0].columns[name].dtype)

    def _bad_id(self, pieces: Sequence[Array], documents: Ints, starts: Ints) -> InvalidDocument:
        at = next(n for n, piece in enumerate(pieces) if _has_bad_id(piece))
        values, document = pieces[at].astype(object), int(documents[at])
        where = next(n for n, value in enumerate(values) if not 0 <= value <= _LARGEST)
        file = int(np.searchsorted(self._firsts, document, side="right")) - 1
        number = document - int(self._firsts[file])
        return InvalidDocument(
            f"{self.files[file].path}: token {int(starts[at]) + where} of document {number} is "
            f"{values[where]}, but ids are from 0 to {_LARGEST}; repair the file, or name its type"
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
        seen: dict[str, TokenFile] = {}
        for file in self.files:
            if str(file.path) in seen:
                raise InvalidOption(f"{file.path} is named twice; name it once")
            seen[str(file.path)] = file


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
    if dtype == _INT32:
        return bool(np.bitwise_or.reduce(values) < 0)  # faster than a minimum
    if not len(values) or (dtype.kind == "u" and dtype.itemsize < 4):
        return False
    return bool(values.max() > _LARGEST or values.min() < 0)


def _require_inside(column: Column, lengths: Ints) -> None:
    """Raise unless the values of every document are in the file, and no two share one."""
    size, path = column.dtype.itemsize, column.data.path
    reached, is_sorted = 0, True
    for first in range(0, len(lengths), _AT_A_TIME):
        part = slice(first, first + _AT_A_TIME)
        counts, at = lengths[part].astype(np.int64), column.pointers[part].astype(np.int64)
        room = (column.data.size - np.clip(at, 0, column.data.size)) // size
        wrong = (counts < 0) | ((counts > 0) & ((at < 0) | (counts > room)))
        if wrong.any():
            raise _outside(column, first + int(np.argmax(wrong)), lengths)
        if column.base >= 0 and ((at - column.base) % size)[counts > 0].any():
            column.base = -1  # read piece by piece
        held = counts > 0
        starts, ends = at[held], (at + counts * size)[held]
        if len(starts):
            before = np.concatenate([[reached], ends[:-1]])
            is_sorted = is_sorted and bool((starts >= before).all())
            reached = int(ends[-1])
    if not is_sorted:
        _require_disjoint(column, lengths, path)


def _outside(column: Column, document: int, lengths: Ints) -> CorruptFile:
    at, count = int(column.pointers[document]), int(lengths[document])
    return CorruptFile(
        f"{column.data.path} has {column.data.size} bytes, but its index says that document "
        f"{document} is {count} values of {column.dtype.itemsize} bytes at byte {at}; one of the "
        "two files was cut off or belongs to another: restore them"
    )


def _require_disjoint(column: Column, lengths: Ints, path: AnyPath) -> None:
    held = np.flatnonzero(np.asarray(lengths) > 0)
    starts = column.pointers[held].astype(np.int64)
    ends = starts + lengths[held].astype(np.int64) * column.dtype.itemsize
    order = np.argsort(starts, kind="stable")
    shared = starts[order][1:] < ends[order][:-1]
    if shared.any():
        at = int(np.argmax(shared))
        one, two = (int(held[order[n]]) for n in (at, at + 1))
        raise CorruptFile(
            f"{path}: document {two} starts at byte {starts[order[at + 1]]}, inside document "
            f"{one}, which ends at byte {ends[order[at]]}; repair the index"
        )
