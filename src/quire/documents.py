"""Documents end to end in flat columns, ready to be planned and gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.ledger import Ledger
from quire.options import PackOptions
from quire.plan import PlanOptions, plan_options
from quire.plan.build import spans


class StoredImage(NamedTuple):
    """An image as shards hold it: by its path, or with the bytes of its file."""

    path: str | None
    data: bytes | None
    sha256: str
    num_bytes: int
    source: str
    """The file that it is read from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """The images of documents, end to end in the order of their numbers."""

    numbers: npt.NDArray[np.int64]
    """Of the documents, ascending."""
    counts: npt.NDArray[np.int64]
    """Images of each."""
    grids: npt.NDArray[np.int64]
    """`[n, 3]`: time, height and width of each image in patches."""
    images: list[StoredImage]

    def counts_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many images each of these documents has."""
        return self.counts[np.searchsorted(self.numbers, numbers)]

    def places_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the images of these documents are, one document after another."""
        at = np.searchsorted(self.numbers, numbers)
        ends = np.cumsum(self.counts)
        places: npt.NDArray[np.int64] = spans((ends - self.counts)[at], self.counts[at]).astype(
            np.int64
        )
        return places

    def patches_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """How many patches the images of each of these documents have."""
        before = np.append(0, np.cumsum(self.grids.prod(axis=1)))
        ends = np.cumsum(self.counts)
        sums: npt.NDArray[np.int64] = before[ends] - before[ends - self.counts]
        return sums[np.searchsorted(self.numbers, numbers)]

    @classmethod
    def joined(cls, parts: Sequence[Media]) -> Media:
        """The images of several groups of documents with ascending numbers."""
        return cls(
            numbers=np.concatenate([part.numbers for part in parts]),
            counts=np.concatenate([part.counts for part in parts]),
            grids=np.concatenate([part.grids for part in parts]),
            images=[image for part in parts for image in part.images],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Document d is ``values[offsets[d] : offsets[d] + lengths[d]]`` of every column.

    Columns are Arrow arrays of the same length, so that tokens that are memory-mapped from a file
    are not copied before they are gathered.
    """

    columns: dict[str, pa.Array]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    """The number of each document in the input."""
    prefix_at: int | None = None
    """Where the columns hold the token that starts every fragment (BOS), if there is one."""
    ends_with_eos: bool = False
    """Whether every document's last token is an EOS that was added to it."""
    is_paired: bool = False
    """Whether documents of which the numbers are 2n and 2n + 1 share a row."""
    media: Media | None = None
    """The images of the documents, if they may have any; such documents are never cut."""
    ledger: Ledger = field(default_factory=Ledger)
    """What was dropped before planning, and is not among these documents."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def prefix(self) -> int:
        """How many tokens start every fragment."""
        return int(self.prefix_at is not None)

    def plan_options(self, options: PackOptions, **changes: object) -> PlanOptions:
        """The options with what the planner needs to know about these documents."""
        return plan_options(options, self.prefix, self.ends_with_eos, **changes)
