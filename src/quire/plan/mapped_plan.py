"""`MappedPlan`: the rows of a plan file, each checked when it is first used.

To check all of a plan takes seconds if it has tens of millions of fragments. Here a few thousand
rows are checked at a time: against their checksum, and against the lengths of the documents.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from quire.errors import CorruptFile
from quire.plan.lengths import IntArray

if TYPE_CHECKING:
    from quire.plan.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class MappedPlan:
    """Rows of fragments in mapped memory, as `Plan` has them."""

    path: str | os.PathLike[str]
    row_offsets: IntArray
    documents: IntArray
    starts: IntArray
    stops: IntArray
    lengths: IntArray
    """The tokens of every document."""
    rows_at_a_time: int
    checksums: IntArray | None
    """A CRC-32 of every ``rows_at_a_time`` rows; None if the plan was checked as a whole."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.row_offsets) - 1

    def check(self, row: int) -> None:
        """Raise if this row is damaged, or not of these documents."""
        number = row // self.rows_at_a_time
        if not self._is_checked[number]:
            self._check(number)
            self._is_checked[number] = 1

    def check_all(self, rows: Sequence[int]) -> None:
        """As `check`, for several rows."""
        size = self.rows_at_a_time
        for number in {row // size for row in rows}:
            self.check(number * size)

    @cached_property
    def _is_checked(self) -> bytearray:
        return bytearray(-(-self.num_rows // self.rows_at_a_time))

    def _check(self, number: int) -> None:
        first = number * self.rows_at_a_time
        last = min(first + self.rows_at_a_time, self.num_rows)
        expected = None if self.checksums is None else int(self.checksums[number])
        if expected is not None and checksum_of_rows(self, first, last) != expected:
            raise CorruptFile(
                f"{self.path}: rows {first} to {last - 1} do not match their checksum; it was "
                "damaged: plan again"
            )
        if not self._is_sound(first, last):
            raise CorruptFile(
                f"{self.path}: rows {first} to {last - 1} name tokens that no document has; plan "
                "again"
            )

    def _is_sound(self, first: int, last: int) -> bool:
        offsets = self.row_offsets[first : last + 1].astype(np.int64)
        if offsets[0] < 0 or (np.diff(offsets) < 1).any():
            return False
        part = slice(int(offsets[0]), int(offsets[-1]))
        documents, starts, stops = self.documents[part], self.starts[part], self.stops[part]
        if not len(documents) == len(starts) == len(stops) == part.stop - part.start:
            return False
        if documents.min() < 0 or documents.max() >= len(self.lengths) or starts.min() < 0:
            return False
        return bool((starts < stops).all() and (stops <= self.lengths[documents]).all())


def checksum_of_rows(plan: Plan | MappedPlan, first: int, last: int) -> int:
    """CRC-32 of the offsets and fragments of rows ``first`` to ``last`` (exclusive)."""
    offsets = plan.row_offsets[first : last + 1]
    part = slice(int(offsets[0]), int(offsets[-1]))
    total = zlib.crc32(np.ascontiguousarray(offsets, dtype="<i8").data)
    for values in (plan.documents[part], plan.starts[part], plan.stops[part]):
        total = zlib.crc32(np.ascontiguousarray(values).data, total)
    return total
