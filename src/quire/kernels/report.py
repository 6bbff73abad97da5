"""What each kernel did; nothing here needs torch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelResult:
    """One kernel on one model."""

    name: str
    outcome: Outcome
    reason: str = ""
    """Why it failed or was skipped; empty if it passed."""
    figures: dict[str, float | int | str] = field(default_factory=dict)
    """What was measured: differences of loss and gradients, compilations, tokens per second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelReport:
    """All kernels on one model and device. Nothing is claimed of kernels that were skipped."""

    device: str
    dtype: str
    model: str
    versions: dict[str, str]
    results: tuple[KernelResult, ...]

    @property
    def passed(self) -> bool:
        """Whether something ran, and nothing that ran failed."""
        outcomes = {result.outcome for result in self.results}
        return "passed" in outcomes and "failed" not in outcomes

    def to_dict(self) -> dict[str, Any]:
        """The whole report as plain values."""
        return {"passed": self.passed, **asdict(self)}

    def to_json(self) -> str:
        """The whole report; numbers that JSON does not have are written as text."""
        return json.dumps(_finite(self.to_dict()), indent=2)


def _finite(value: Any) -> Any:  # noqa: ANN401 - plain values
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
