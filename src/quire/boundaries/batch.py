"""The boundaries of all rows of a batch, without a loop over documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.boundaries.checks import Ints, read_integers, read_starts
from quire.errors import InvalidBoundaries, InvalidOption
from quire.options import is_integer

Ints32: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Boundaries:
    """The segments of a batch: its fragments and its runs of padding.

    >>> batch = Boundaries.of_rows([[0, 3], [0]], lengths=[5, 4])
    >>> batch.position_ids()
    array([[0, 1, 2, 0, 1],
           [0, 1, 2, 3, 0]])
    >>> batch.segment_ids()
    array([[1, 1, 1, 2, 2],
           [1, 1, 1, 1, 0]], dtype=int32)
    """

    shape: tuple[int, int]
    """Rows, and positions in each."""
    starts: Ints
    """Where each segment starts in the flattened batch."""
    numbers: Ints
    """1..k for the fragments of a row from left to right, 0 for padding."""

    @classmethod
    def of_rows(
        cls,
        starts: Sequence[npt.ArrayLike],
        lengths: Sequence[int] | Ints,
        width: int | None = None,
        multiple: int = 1,
    ) -> Boundaries:
        """The boundaries of rows with these starts and lengths, padded on the right.

        Every fragment is padded to a multiple of `multiple`; without `width` rows are as wide as
        the longest one needs. Bad starts raise an error that names row and value.
        """
        row_lengths = read_integers(lengths, "lengths of rows")
        flat, counts = read_starts(starts, row_lengths)
        last = counts.cumsum() - 1
        sizes = _gaps(flat, row_lengths, last)
        places, needed = _aligned(flat, sizes, counts, require_multiple(multiple))
        width = _require_width(needed, width)
        spaces = _gaps(places, width, last)
        offsets = (np.arange(len(counts)) * width).repeat(counts)
        segments = _segments(places + offsets, _numbers(counts), sizes, spaces)
        return cls(shape=(len(counts), width), **segments)

    @classmethod
    def of_tokens(
        cls, tokens: npt.NDArray[np.integer], token_id: int, *, ends: bool = True
    ) -> Boundaries:
        """The boundaries of full rows `[B, T]`: after each `token_id`, or at each if not `ends`."""
        found = tokens == token_id
        opens = np.ones_like(found)
        opens[:, 1:] = found[:, :-1] if ends else found[:, 1:]
        return cls(
            shape=(tokens.shape[0], tokens.shape[1]),
            starts=np.flatnonzero(opens),
            numbers=_numbers(opens.sum(axis=1)),
        )

    @property
    def size(self) -> int:
        """Positions in the whole batch."""
        return self.shape[0] * self.shape[1]

    @property
    def lengths(self) -> Ints:
        """The length of each segment, padding included."""
        return _gaps(self.starts, self.size, -1)

    @property
    def is_dense(self) -> bool:
        """Whether padding is only at the right ends of rows."""
        return bool((self.numbers[1:] <= 1)[self.numbers[:-1] == 0].all())

    @property
    def max_length(self) -> int:
        """The length of the longest segment."""
        return int(self.lengths.max())

    def position_ids(self) -> Ints:
        """`[B, T]`: the distance of every position from the start of its segment."""
        positions = self.starts.repeat(self.lengths)
        np.subtract(_places(self.size), positions, out=positions)
        return positions.reshape(self.shape)

    def segment_ids(self) -> Ints32:
        """`[B, T]`: 1..k within a row, 0 on padding."""
        return self.numbers.astype(np.int32).repeat(self.lengths).reshape(self.shape)

    def seq_idx(self) -> Ints32:
        """`[B, T]`: 0, 1, … within a row; a run of padding counts as one more segment."""
        order = np.arange(len(self.starts))
        opens_row = self.starts % self.shape[1] == 0
        index = order - np.maximum.accumulate(np.where(opens_row, order, 0))
        return index.astype(np.int32).repeat(self.lengths).reshape(self.shape)

    def cu_seqlens(self) -> Ints32:
        """The starts of all segments in the flattened batch, then its size."""
        return _int32(np.append(self.starts, self.size))

    def true_cu_seqlens(self) -> Ints32:
        """The number of tokens, without padding, before each fragment and in total."""
        return _int32(np.append(0, np.cumsum(self.lengths[self.numbers > 0])))

    def padded_cu_seqlens(self) -> Ints32:
        """The starts of fragments in the flattened batch; padding belongs to the one before it.

        Context-parallel kernels need this and `true_cu_seqlens`.
        """
        return _int32(np.append(self.starts[self.numbers > 0], self.size))


def require_multiple(multiple: int) -> int:
    """The value, if it is a valid multiple for padding fragments."""
    if not is_integer(multiple) or multiple < 1:
        raise InvalidOption(f"fragments cannot be padded to a multiple of {multiple!r}; give >= 1")
    return int(multiple)


def _gaps(starts: Ints, row_ends: Ints | int, last: Ints | int) -> Ints:
    """From each start to the next one in its row, or to the row's end."""
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[last] = row_ends
    return stops - starts


def _numbers(counts: Ints) -> Ints:
    """1..count for each row, one row after another."""
    before = counts.cumsum() - counts
    return np.arange(1, int(counts.sum()) + 1) - before.repeat(counts)


def _aligned(flat: Ints, sizes: Ints, counts: Ints, multiple: int) -> tuple[Ints, Ints]:
    """Where fragments start in rows in which each is padded, and the lengths of these rows."""
    padded = -(-sizes // multiple) * multiple
    first = counts.cumsum() - counts
    needed = np.add.reduceat(padded, first)
    if multiple == 1:
        return flat, needed
    places = padded.cumsum() - padded
    return places - places[first].repeat(counts), needed


def _require_width(needed: Ints, width: int | None) -> int:
    longest = int(needed.max())
    if width is None:
        return longest
    if width < longest:
        raise InvalidBoundaries(
            f"row {int(needed.argmax())} needs {longest} positions, but rows are {width} wide; "
            "cut the row or widen the batch"
        )
    return width


def _segments(places: Ints, numbers: Ints, sizes: Ints, spaces: Ints) -> dict[str, Ints]:
    """Fragments, each followed by its padding where it has any."""
    has_padding = spaces > sizes
    if not has_padding.any():
        return {"starts": places, "numbers": numbers}
    kept = np.ones((len(places), 2), dtype=np.bool_)
    kept[:, 1] = has_padding
    starts = np.empty((len(places), 2), dtype=np.int64)
    starts[:, 0] = places
    starts[:, 1] = places + sizes
    both = np.zeros((len(places), 2), dtype=np.int64)
    both[:, 0] = numbers
    return {"starts": starts[kept], "numbers": both[kept]}


def _places(size: int) -> Ints:
    """0, 1, …, size - 1; cached, as the next batch usually has the same size."""
    return _kept_places(size) if size <= 1 << 20 else np.arange(size)


@lru_cache(maxsize=4)
def _kept_places(size: int) -> Ints:
    places = np.arange(size)
    places.flags.writeable = False
    return places


def _int32(bounds: Ints) -> Ints32:
    if bounds[-1] > np.iinfo(np.int32).max:
        raise InvalidBoundaries(
            f"the batch has {bounds[-1]} positions, but cu_seqlens are 32-bit; make it smaller"
        )
    return bounds.astype(np.int32)
