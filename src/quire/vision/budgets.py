"""What a pack may hold at most: tokens, and if so wished images, patches and samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
    def several(self) -> bool:
        """Whether anything but tokens has a limit."""
        return len(self.names) > 1 or self.documents is not None

    @property
    def limits(self) -> tuple[int, ...]:
        """The most of each that is measured."""
        return tuple(getattr(self, name) for name in self.names)

    @property
    def lengths_needed(self) -> str:
        """What a caller gives so that packs are known before samples are read.

        >>> Budgets(tokens=8).lengths_needed, Budgets(tokens=8, images=2).lengths_needed
        ("lengths=, or a column 'length'", "lengths={'tokens': ..., 'images': ...}, or columns \
'length' and 'image_grid_thw'")
        """
        if len(self.names) == 1:
            return "lengths=, or a column 'length'"
        columns = ", ".join(f"{name!r}: ..." for name in self.names)
        return f"lengths={{{columns}}}, or columns 'length' and 'image_grid_thw'"

    def oversized(self, sizes: IntArray) -> BoolArray:
        """Which samples can share a pack with no other: as long as a pack, or over a limit.

        >>> Budgets(tokens=8, images=2).oversized(np.array([[7, 2], [8, 0], [3, 3]])).tolist()
        [False, True, True]
        """
        over: BoolArray = np.any(sizes > np.asarray(self.limits), axis=1)
        return over | (sizes[:, 0] >= self.tokens)

    def is_oversized(self, sizes: Sequence[int]) -> bool:
        """`oversized`, of one sample."""
        over = any(size > most for size, most in zip(sizes, self.limits, strict=True))
        return over or sizes[0] >= self.tokens

    def fills(self, used: IntArray, num_documents: IntArray) -> npt.NDArray[np.float64]:
        """How full packs are in whatever they are fullest in: that is what closes them.

        >>> Budgets(tokens=10, images=2).fills(np.array([[3, 2], [6, 1]]), np.array([2, 1]))
        array([1. , 0.6])
        """
        fills: npt.NDArray[np.float64] = np.max(used / np.asarray(self.limits), axis=1)
        if self.documents is None:
            return fills
        return np.maximum(fills, num_documents / self.documents)
