"""What a strategy gives back: fragments, row after row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Fragment numbers in row order; row r holds ``fragments[offsets[r]:offsets[r + 1]]``."""

    fragments: IntArray
    offsets: IntArray

    @classmethod
    def of_row_numbers(cls, row_numbers: IntArray) -> Rows:
        """Rows from the row number of every fragment; a row's fragments keep their order.

        >>> Rows.of_row_numbers(np.array([1, 0, 1])).fragments
        array([1, 0, 2])
        """
        order = np.argsort(row_numbers, kind="stable")
        in_order = row_numbers[order]
        firsts = np.flatnonzero(np.diff(in_order, prepend=in_order[:1] - 1))
        return cls(fragments=order, offsets=np.append(firsts, len(order)).astype(np.int64))

    @property
    def counts(self) -> IntArray:
        """Fragments per row."""
        return np.diff(self.offsets)
