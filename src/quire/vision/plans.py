"""Plans of whole epochs, kept: a Trainer counts the packs of all epochs before the first one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from quire.vision.schedule import EpochPlan
from quire.vision.scope import MOST_SAMPLES


class Plans:
    """The latest plans, together of as many samples as one may have; workers make their own."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, EpochPlan] = {}

    def get(self, key: Hashable, plan: Callable[[], EpochPlan]) -> EpochPlan:
        """The plan with this key, made if it is not there."""
        if key not in self._kept:
            self._kept[key] = plan()
            while len(self._kept) > 1 and self._num_samples > MOST_SAMPLES:
                del self._kept[next(iter(self._kept))]
        return self._kept[key]

    @property
    def _num_samples(self) -> int:
        return sum(len(plan.sizes) for plan in self._kept.values())

    def __getstate__(self) -> dict[str, Any]:
        return {"_kept": {}}
