"""Which fragments and groups the model learns from: those with a trained label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.dataset.documents import without
from quire.documents import Documents
from quire.plan.fragments import Fragments
from quire.plan.planner import Supervised

IGNORE = -100
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)
"""How many bits of each byte are set."""

IntArray: TypeAlias = npt.NDArray[np.int64]


def supervised_by_labels(documents: Documents) -> Supervised | None:
    """A function that returns for each fragment whether any label in it is trained.

    Documents of one token are kept: their label is never a target anyway.
    """
    if "labels" not in documents.columns:
        return None
    labels = documents.columns["labels"].to_numpy(zero_copy_only=False)
    trained_before = counts_before(labels != IGNORE)

    def supervised(fragments: Fragments) -> npt.NDArray[np.bool]:
        at = documents.offsets[fragments.documents]
        one_token = documents.lengths[fragments.documents] == 1
        trained = trained_before(at + fragments.stops) > trained_before(at + fragments.starts)
        taught: npt.NDArray[np.bool] = trained | one_token
        return taught

    return supervised


def counts_before(flags: npt.NDArray[np.bool]) -> Callable[[IntArray], IntArray]:
    """A function that counts the flags that are set before each of some positions.

    A running sum would be many times as large as the flags; one of their bytes, eight flags each,
    takes an eighth of that, and the rest is counted when it is asked for.

    >>> counts_before(np.array([True, False, True]))(np.array([0, 1, 3])).tolist()
    [0, 1, 2]
    """
    packed = np.append(np.packbits(flags), np.uint8(0))  # the first flag is the highest bit
    sums = np.append(0, np.cumsum(_ONES[packed], dtype=np.int64))

    def counts_before(places: IntArray) -> IntArray:
        byte, bit = places >> 3, places & 7
        earlier = packed[byte] >> (8 - bit).astype(np.uint8)
        counts: IntArray = sums[byte] + _ONES[earlier]
        return counts

    return counts_before


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainedRuns:
    """Which tokens of documents end to end are trained, without the tokens.

    Two numbers for each run of trained tokens: a corpus whose labels are its tokens has one run.

    >>> one = TrainedRuns(edges=np.array([1, 3]), num_tokens=4)
    >>> TrainedRuns.joined([one, one]).edges.tolist()
    [1, 3, 5, 7]
    """

    edges: IntArray
    """Start and stop of each run, in turn, increasing."""
    num_tokens: int = 0

    @classmethod
    def of(cls, documents: Documents) -> TrainedRuns:
        """The runs of documents that may have labels."""
        total = int(documents.lengths.sum())
        if "labels" not in documents.columns:
            return cls(edges=np.zeros(0, dtype=np.int64), num_tokens=total)
        labels = documents.columns["labels"].to_numpy(zero_copy_only=False)
        ends = np.cumsum(documents.lengths)
        shifts = np.repeat(documents.offsets - (ends - documents.lengths), documents.lengths)
        trained = labels[np.arange(total) + shifts] != IGNORE
        edges = np.flatnonzero(np.diff(trained, prepend=False, append=False))
        return cls(edges=edges.astype(np.int64), num_tokens=total)

    @classmethod
    def joined(cls, parts: Sequence[TrainedRuns]) -> TrainedRuns:
        """The runs of documents that follow each other."""
        starts = np.cumsum([0, *(part.num_tokens for part in parts)])
        edges = [part.edges + start for part, start in zip(parts, starts[:-1], strict=True)]
        nothing = np.zeros(0, dtype=np.int64)
        return cls(edges=np.concatenate([nothing, *edges]), num_tokens=int(starts[-1]))

    def judge(self, lengths: IntArray) -> Supervised:
        """What `supervised_by_labels` returns for these documents, given only their lengths."""
        starts, stops = np.append(self.edges[::2], np.iinfo(np.int64).max), self.edges[1::2]
        offsets = np.cumsum(lengths) - lengths

        def supervised(fragments: Fragments) -> npt.NDArray[np.bool]:
            at = offsets[fragments.documents]
            next_run = np.searchsorted(stops, at + fragments.starts, side="right")
            one_token = lengths[fragments.documents] == 1
            taught: npt.NDArray[np.bool] = (starts[next_run] < at + fragments.stops) | one_token
            return taught

        return supervised


def teaching_groups(
    documents: Documents, groups: npt.NDArray[np.int64]
) -> tuple[Documents, npt.NDArray[np.int64]]:
    """The documents of all groups that have a trained label, and the groups' numbers.

    A group is kept or dropped as a whole, so some of its documents may have no trained label.
    """
    supervised = supervised_by_labels(documents)
    if supervised is None:
        return documents, groups
    every = np.arange(len(documents))
    whole = Fragments(documents=every, starts=np.zeros_like(every), stops=documents.lengths)
    silent = ~np.isin(groups, groups[supervised(whole)])
    return without(documents, silent, "unsupervised"), groups[~silent]
