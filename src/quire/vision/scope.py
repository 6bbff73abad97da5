"""What is grouped together: a buffer of samples, or all samples of a rank's epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray
from quire.plan.vector_levels import BUDGET
from quire.vision.budgets import Budgets
from quire.vision.carry_over import Group
from quire.vision.options import Scope

MOST_SAMPLES = 1 << 20
"""Epochs of more samples are grouped by the buffer, unless one asks: best-fit takes some 40 µs for
each, and every rank plans for all ranks."""
MOST_STEPS = 1 << 13
"""Of search for each sample, or a few hundred samples would take as long as ten thousand."""
WINDOW = 1 << 15
"""Samples of a rank that are grouped at once; what they leave underfilled joins the next ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeEpoch:
    """How an epoch is grouped as a whole: in large windows, by search, and in which order."""

    seed: int
    epoch: int
    window: int = WINDOW

    def search_steps(self, num_samples: int) -> int:
        """Steps of search for each sample: all ranks and windows share what one plan may cost.

        >>> WholeEpoch(seed=0, epoch=0).search_steps(1_000_000)
        100
        """
        return min(MOST_STEPS, max(1, BUDGET // max(1, num_samples)))

    def in_drawn_order(self, packs: list[Group], rank: int) -> list[Group]:
        """The packs in the order of one sample of each, drawn at random.

        By their oldest sample, packs of many small samples would come first in every epoch.

        >>> packs = [Group(positions=(0, 9), tokens=8), Group(positions=(4,), tokens=8)]
        >>> [pack.positions for pack in WholeEpoch(seed=0, epoch=1).in_drawn_order(packs, rank=0)]
        [(4,), (0, 9)]
        """
        draws = np.random.PCG64([self.seed, self.epoch, rank]).random_raw(len(packs)).tolist()
        return [
            pack
            for _, pack in sorted(
                (pack.positions[draw % len(pack.positions)], pack)
                for draw, pack in zip(draws, packs, strict=True)
            )
        ]


def is_whole(scope: Scope, budgets: Budgets, sizes: IntArray | None, by_number: bool) -> bool:
    """Whether an epoch of these sizes is grouped as a whole.

    Samples that are read in order would all have to be held until their pack's turn comes.
    """
    possible = sizes is not None and by_number
    if scope == "epoch" and not possible:
        missing = "their lengths are not known" if by_number else "the dataset is read in order"
        raise InvalidOption(
            f"packing_scope is 'epoch' but {missing}; give a dataset with __getitem__ and "
            f"{budgets.lengths_needed}, or set packing_scope to 'buffer'"
        )
    if sizes is None or not by_number or scope != "auto":
        return scope == "epoch"
    return budgets.several and len(sizes) <= MOST_SAMPLES
