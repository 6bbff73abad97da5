"""Tokens where another system wrote them: mapped from local files, requested from stores.

A `TokenFile` says where each document of one file is. No token is read to plan: only lengths are,
which most formats have in an index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from quire.errors import CorruptFile, InvalidDocument, SourceChanged, StorageError
from quire.ledger import Ledger, TokenTally
from quire.storage import AnyPath, RemotePath, each

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.integer]
Part: TypeAlias = "memoryview | bytes"
TOKENS = "input_ids"
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
        self.view: memoryview | None = None
        """All bytes, unless they are in a store."""
        self._file = file = held_in or path
        try:
            self.size = file.stat().st_size
            if not isinstance(file, RemotePath):
                self._mapped = np.zeros(0, np.uint8)
                if self.size:  # an empty file cannot be mapped
                    self._mapped = np.memmap(file, np.uint8, "r").view(np.ndarray)
                self.view = memoryview(self._mapped)  # type: ignore[arg-type]
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

    def parts(self, firsts: Sequence[int], lasts: Sequence[int]) -> list[Part]:
        """The bytes from some places to others, which the caller has checked to be inside.

        Slices of a `memoryview` are faster than arrays, and need not be aligned.
        """
        if self.view is not None:
            return list(map(self.view.__getitem__, map(slice, firsts, lasts)))
        ranges = zip(firsts, lasts, strict=True)
        return each(lambda one: self._requested(one[0], one[1] - one[0]), ranges, at_once=True)

    def require_unchanged(self) -> None:
        """Raise if a mapped file has another size now: reading beyond its end ends the process."""
        if isinstance(self._file, RemotePath):
            return
        try:
            size = self._file.stat().st_size
        except OSError as error:
            raise SourceChanged(f"{self.path} can no longer be read: {error.strerror}") from error
        if size != self.size:
            raise SourceChanged(
                f"{self.path} changed during the run: it had {self.size} bytes and now has {size}; "
                "restore it, or start over with files that do not change"
            )

    def here(self) -> TokenBytes:
        """The same bytes in memory, for a format that keeps its index among them."""
        if self._mapped is None:
            self._mapped = np.frombuffer(self._requested(0, self.size), np.uint8)
            self.view = memoryview(self._mapped)  # type: ignore[arg-type]
        return self

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
    """One value per token: the type of the values, and the byte at which each document starts."""

    def __init__(self, data: TokenBytes, dtype: np.dtype[Any], pointers: Ints) -> None:
        self.data, self.dtype, self.pointers = data, dtype, pointers
        self._place = _number_at(pointers)

    def few(self, spans: Iterable[tuple[int, int, int]]) -> list[Part]:
        """The bytes of a few (document, start, stop): as `many`, without numpy's fixed costs."""
        place, size, view = self._place, self.dtype.itemsize, self.data.view
        if view is None:
            return self.many(*(np.array(values) for values in zip(*spans, strict=True)))
        return [
            view[(at := place(document)) + start * size : at + stop * size]
            for document, start, stop in spans
        ]

    def many(self, documents: Ints, starts: Ints, stops: Ints) -> list[Part]:
        """The bytes of tokens ``start:stop`` of documents."""
        places, size = self.pointers[documents], self.dtype.itemsize
        firsts, lasts = (places + edges.astype(np.int64) * size for edges in (starts, stops))
        return self.data.parts(firsts.tolist(), lasts.tolist())


def _number_at(values: Ints) -> Callable[[int], int]:
    """A number of an array, as an int: from a memoryview, in half the time if it is not aligned."""
    if len(values) and values.dtype == np.int64 and values.flags.c_contiguous:
        return memoryview(values.view(np.uint8)).cast("q").__getitem__  # type: ignore[arg-type]
    return values.item


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
    """The tokens that belong to no document."""

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


def _require_inside(column: Column, lengths: Ints) -> None:
    """Raise unless the values of every document are in the file, and no two share one."""
    size, path = column.dtype.itemsize, column.data.path
    reached, is_sorted = 0, True
    for first in range(0, len(lengths), _AT_A_TIME):
        part = slice(first, first + _AT_A_TIME)
        counts, at = lengths[part].astype(np.int64), column.pointers[part].astype(np.int64)
        if _are_end_to_end(at, counts, size, column.data.size) and at[0] >= reached:
            reached = int(at[-1] + counts[-1] * size)
            continue
        room = (column.data.size - np.clip(at, 0, column.data.size)) // size
        wrong = (counts < 0) | ((counts > 0) & ((at < 0) | (counts > room)))
        if wrong.any():
            raise _outside(column, first + int(np.argmax(wrong)), lengths)
        held = counts > 0
        starts, ends = at[held], (at + counts * size)[held]
        if len(starts):
            before = np.concatenate([[reached], ends[:-1]])
            is_sorted = is_sorted and bool((starts >= before).all())
            reached = int(ends[-1])
    if not is_sorted:
        _require_disjoint(column, lengths, path)


def _are_end_to_end(at: Ints, counts: Ints, size: int, bytes_: int) -> bool:
    """Whether each document follows the one before it: the usual case, which is quickly checked."""
    if counts.min() < 0 or counts.max() > bytes_ or at[0] < 0:
        return False
    ends = at + counts * size
    return bool(ends[-1] <= bytes_ and (at[1:] == ends[:-1]).all())


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
