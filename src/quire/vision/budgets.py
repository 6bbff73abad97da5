"""What a pack may hold at most: tokens, and if so wished images, patches and samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import BoolArray, IntArray
from quire.vision.options import VisionPackingOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class Budgets:
    """The limits of a pack; None is no limit.

    >>> Budgets(tokens=4096, images=8).names
    ('tokens', 'images')
    """

    tokens: int
    images: int | None = None
    patches: int | None = None
    documents: int | None = None

    @classmethod
    def of(cls, options: VisionPackingOptions, packing_length: int) -> Budgets:
        """The limits that the options set, with the pack length that they resolved to."""
        return cls(
            tokens=packing_length,
            images=options.packing_max_images,
            patches=options.packing_max_patches,
            documents=options.packing_max_documents,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured of every sample."""
        wanted = [name for name in ("images", "patches") if getattr(self, name) is not None]
        return ("tokens", *wanted)

    @property
    def limits(self) -> tuple[int, ...]:
        """The most of each that is measured."""
        return tuple(getattr(self, name) for name in self.names)

    def oversized(self, sizes: IntArray) -> BoolArray:
        """Which samples can share a pack with no other: as long as a pack, or over a limit.

        >>> Budgets(tokens=8, images=2).oversized(np.array([[7, 2], [8, 0], [3, 3]])).tolist()
        [False, True, True]
        """
        over: BoolArray = np.any(sizes > np.asarray(self.limits), axis=1)
        return over | (sizes[:, 0] >= self.tokens)

    def fill(self, used: IntArray, num_documents: int) -> float:
        """How full a pack is in whatever it is fullest in: that is what closes it.

        >>> Budgets(tokens=10, images=2).fill(np.array([3, 2]), num_documents=2)
        1.0
        """
        shares = [float(part / limit) for part, limit in zip(used, self.limits, strict=True)]
        if self.documents is not None:
            shares.append(num_documents / self.documents)
        return max(shares)
