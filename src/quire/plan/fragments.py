"""Fragments of documents, and the rows that hold them.

`apply_overlong` decides what happens to documents longer than a row. Cuts that depend on the rows
(``wrapped``, ``overlong="fill"``) are in `fill`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quire.errors import OversizedDocument
from quire.options.names import option, setting
from quire.plan.lengths import BoolArray, IntArray, narrowest_signed
from quire.plan.options import PlanOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Fragments:
    """Parts of documents: fragment i is tokens ``starts[i]:stops[i]`` of ``documents[i]``."""

    documents: IntArray
    starts: IntArray
    stops: IntArray
    num_openings: int = 0
    """For i below this, fragment i is the start of document i; the others are in any order."""

    @property
    def lengths(self) -> IntArray:
        """Tokens in each fragment, including the overlap."""
        return self.stops if self.num_openings == len(self) else self.stops - self.starts

    def take(self, which: IntArray) -> Fragments:
        """Some of the fragments, in the given order."""
        stops = self.stops[which]
        if not self.num_openings:
            return Fragments(
                documents=self.documents[which], starts=self.starts[which], stops=stops
            )
        # Nearly all fragments start their document, which saves two of the three gathers.
        documents, starts = which.astype(self.documents.dtype), np.zeros_like(stops)
        if self.num_openings < len(self):
            others = np.flatnonzero(which >= self.num_openings)
            documents[others] = self.documents[which[others]]
            starts[others] = self.starts[which[others]]
        return Fragments(documents=documents, starts=starts, stops=stops)

    def in_document_order(self) -> Fragments:
        """The fragments sorted by document, and by position within each document."""
        if self.num_openings == len(self):
            return self
        return self.take(np.argsort(self.documents, kind="stable"))

    def joined(self, others: Fragments) -> Fragments:
        """These fragments followed by the others."""
        return Fragments(
            documents=np.concatenate([self.documents, others.documents]),
            starts=np.concatenate([self.starts, others.starts]),
            stops=np.concatenate([self.stops, others.stops]),
        )

    def overlaps(self, stride: int) -> IntArray:
        """Tokens in each fragment that an earlier fragment of its document also holds.

        >>> cut = Fragments(documents=np.zeros(2, int), starts=np.array([0, 3]),
        ...                 stops=np.array([5, 8]))
        >>> cut.overlaps(stride=2)
        array([0, 2], dtype=int32)
        """
        overlap = np.zeros(len(self), dtype=np.int32)
        if stride and len(self):
            order = np.lexsort((self.stops, self.documents))
            inside = self.take(order)
            continues = np.diff(inside.documents, prepend=-1) == 0
            repeated = np.maximum(0, np.roll(inside.stops, 1) - inside.starts)
            overlap[order] = np.where(continues, repeated, 0)
        return overlap

    def __len__(self) -> int:
        return len(self.documents)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Fragment numbers in row order; row r holds ``fragments[offsets[r]:offsets[r + 1]]``."""

    fragments: IntArray
    offsets: IntArray

    @classmethod
    def of_row_numbers(cls, row_numbers: IntArray) -> Rows:
        """Rows from the row number of each fragment; fragments keep their order within a row.

        >>> Rows.of_row_numbers(np.array([1, 0, 1])).fragments
        array([1, 0, 2])
        """
        order = np.argsort(row_numbers, kind="stable")
        in_order = row_numbers[order]
        firsts = np.flatnonzero(np.diff(in_order, prepend=in_order[:1] - 1))
        return cls(fragments=order, offsets=np.append(firsts, len(order)).astype(np.int64))

    @property
    def counts(self) -> IntArray:
        """The number of fragments in each row."""
        return np.diff(self.offsets)


def numbered_by_first(groups: IntArray) -> IntArray:
    """Group numbers from 0, in the order in which the groups first appear.

    >>> numbered_by_first(np.array([7, 3, 7, 5]))
    array([0, 1, 0, 2])
    """
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[group.reshape(-1)]


def whole_documents(lengths: IntArray, options: PlanOptions) -> Fragments:
    """One fragment per non-empty document, in integers wide enough for prefix and alignment."""
    largest_space = int(lengths.max(initial=0)) + options.prefix + options.align
    integer = narrowest_signed(max(len(lengths), largest_space))
    documents: IntArray = np.arange(len(lengths), dtype=integer)
    stops: IntArray = lengths.astype(integer)
    if len(lengths) and lengths.min() == 0:
        documents, stops = documents[lengths > 0], stops[lengths > 0]
    return Fragments(
        documents=documents,
        starts=np.zeros_like(documents),
        stops=stops,
        num_openings=len(lengths) if len(documents) == len(lengths) else 0,
    )


def apply_overlong(whole: Fragments, options: PlanOptions) -> Fragments:
    """The fragments after ``options.overlong`` was applied to documents longer than a row."""
    longest = options.max_fragment
    overlong = whole.stops > longest
    if not overlong.any():
        return whole
    if options.overlong == "error":
        raise _oversized(whole, overlong, longest)
    if options.overlong == "drop":
        return whole.take(np.flatnonzero(~overlong))
    if options.overlong == "truncate":
        return replace(whole, stops=np.minimum(whole.stops, longest))
    if options.overlong == "truncate_left":
        starts = np.maximum(whole.stops - longest, 0)
        return Fragments(documents=whole.documents, starts=starts, stops=whole.stops)
    return _split(whole, np.flatnonzero(overlong), options)


def _oversized(whole: Fragments, overlong: BoolArray, longest: int) -> OversizedDocument:
    first = int(np.argmax(overlong))
    return OversizedDocument(
        f"document {whole.documents[first]} has {whole.stops[first]} tokens but a row holds "
        f"{longest}; split it ({setting('overlong', 'split')}), truncate it "
        f"({setting('overlong', 'truncate')}) or raise {option('max_length')}"
    )


def _split(whole: Fragments, overlong: IntArray, options: PlanOptions) -> Fragments:
    """Full fragments from the left; a last one that is too short takes tokens from its neighbor.

    Continuations follow all first fragments; `Fragments.in_document_order` sorts them in.
    """
    length = whole.stops[overlong].astype(np.int64)
    longest, step = options.max_fragment, options.max_fragment - options.stride
    continuations = -((longest - length) // step)
    document = np.repeat(np.arange(len(overlong)), continuations)
    number = np.arange(len(document)) - (np.cumsum(continuations) - continuations)[document]
    # Continuation j holds the new tokens from cut j to cut j + 1, preceded by the overlap.
    shortest = max(options.min_tail, options.min_fragment if options.overlong == "fill" else 1)
    latest_cut = (length - shortest)[document]
    cuts = np.minimum(longest + number * step, latest_cut)
    ends = np.minimum(longest + (number + 1) * step, latest_cut)
    ends[np.cumsum(continuations) - 1] = length
    first_stops = whole.stops.copy()
    first_stops[overlong] = cuts[number == 0]
    integer = whole.stops.dtype
    return Fragments(
        documents=np.append(whole.documents, whole.documents[overlong][document]),
        starts=np.append(whole.starts, (cuts - options.stride).astype(integer)),
        stops=np.append(first_stops, ends.astype(integer)),
        num_openings=whole.num_openings,
    )
