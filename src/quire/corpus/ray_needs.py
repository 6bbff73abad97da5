"""What a task of Ray is given, and how many such tasks a cluster has room for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What Ray sets aside for a task."""

    cpus: float
    memory: int | None = None

    def places(self, nodes: Sequence[dict[str, Any]]) -> int:
        """How many tasks the living nodes have room for.

        >>> node = {"Alive": True, "Resources": {"CPU": 8.0, "memory": 4e9}}
        >>> Needs(cpus=1).places([node]), Needs(cpus=3, memory=3 * 10**9).places([node])
        (8, 1)
        """
        return sum(self._places(node["Resources"]) for node in nodes if node["Alive"])

    def _places(self, resources: dict[str, float]) -> int:
        by_cpus = math.floor(resources.get("CPU", 0.0) / self.cpus)
        if self.memory is None:
            return by_cpus
        return min(by_cpus, math.floor(resources.get("memory", 0.0) / self.memory))

    def options(self) -> dict[str, float]:
        """As Ray's own words."""
        return {"num_cpus": self.cpus} | ({} if self.memory is None else {"memory": self.memory})

    def __str__(self) -> str:
        memory = "" if self.memory is None else f" and {self.memory} bytes of memory"
        return f"{self.cpus:g} CPUs{memory}"
