"""All questions asked of one call, and the verdict that follows from the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from quire.errors import ModelError
from quire.verify.agreement import disagreements
from quire.verify.calls import Call
from quire.verify.control import (
    DEAF_GRADIENTS,
    dependence,
    make_control,
    without_witness,
)
from quire.verify.examination import Effects, Examination, examine
from quire.verify.layout import Batch, Layout
from quire.verify.model_state import (
    batch_in_float32,
    evaluating,
    in_float32,
    is_half,
    is_training,
)
from quire.verify.options import IsolationOptions
from quire.verify.report import Altered, Dependence, Disagreement, Pair, Verdict

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """The answers, and the size of the call that they are about."""

    pairs: tuple[Pair, ...]
    dependence: Dependence
    altered: tuple[Altered, ...]
    disagreements: tuple[Disagreement, ...]
    skipped: dict[str, str]
    dtype: torch.dtype
    tolerance: float
    num_logits: int

    @property
    def verdict(self) -> Verdict:
        """The worst that was found."""
        kinds = {pair.kind for pair in self.pairs}
        if "leak" in kinds:
            return "leak"
        if self.dependence != "shown":  # before "altered", which says that no document sees another
            return "unproven"
        if self.altered:
            return "altered"
        if self.disagreements:
            return "disagreement"
        if "unproven" in kinds:
            return "unproven"
        return "noise" if kinds else "isolated"


def find(
    call: Call, batch: Batch, layout: Layout, options: IsolationOptions, *, detailed: bool = True
) -> Findings:
    """The findings about this call; without details, a leak is not traced to single documents."""
    examination = examine(call, batch, layout, options)
    skipped: dict[str, str] = {}
    pairs, noticed = _compare(examination, skipped, detailed=detailed)
    doubtful = [pair for pair in pairs if pair.kind == "noise"]
    precise = _or_skip("float32", skipped, lambda: _precisely(examination, doubtful, skipped))
    if precise is None:  # 16 bits that cannot be widened
        judged = without_witness(pairs)
        altered = _altered(examination, skipped)
    else:
        moved, altered = precise
        judged = [_judge(pair, moved) for pair in pairs]
    return Findings(
        pairs=tuple(judged),
        dependence=noticed,
        altered=tuple(altered),
        disagreements=disagreements(batch, layout),
        skipped=skipped,
        dtype=examination.base.dtype,
        tolerance=examination.tolerance,
        num_logits=examination.base.shape[2:].numel(),
    )


def _compare(
    examination: Examination, skipped: dict[str, str], *, detailed: bool
) -> tuple[list[Pair], Dependence]:
    """The pairs that are not independent, and whether a document notices its own past."""
    layout, control = examination.layout, make_control(examination)
    # What compares bits comes first: gradients and other shapes make torch.compile build kernels
    # anew, and those round otherwise.
    differences = examination.differences(layout.documents + layout.padding, detailed=detailed)
    moved = control.difference(isolated=not differences)
    gradients = _gradients(examination, skipped, detailed=detailed)
    pairs = examination.pairs(differences, gradients)
    slope = control.gradient() if gradients is not None and control.halves else None
    if slope == 0.0:
        skipped["gradients"] = DEAF_GRADIENTS
        pairs = without_witness(pairs)
    return pairs, dependence(control, moved, slope)


def _gradients(
    examination: Examination, skipped: dict[str, str], *, detailed: bool
) -> Effects | None:
    if not examination.options.gradients:
        skipped["gradients"] = "not asked for (options.gradients=False)"
        return None
    return _or_skip("gradients", skipped, lambda: examination.gradients(detailed=detailed))


def _precisely(
    examination: Examination, doubtful: Sequence[Pair], skipped: dict[str, str]
) -> tuple[tuple[Effects, float] | None, list[Altered]]:
    """What is asked where rounding is small: the doubtful pairs again, in float32 if the model has
    16 bits, and documents alone. Rounding shrinks with the precision, and a leak does not."""
    model = examination.call.model
    if not is_half(model, examination.base):
        return None, _altered(examination, skipped)
    with in_float32(model):
        precise = _again(examination, batch_in_float32(examination.batch))
        sources = sorted({pair.source for pair in doubtful})
        moved = precise.differences(sources, detailed=len(sources) > 1) if sources else {}
        return (moved, precise.tolerance), _altered(precise, skipped)


def _altered(examination: Examination, skipped: dict[str, str]) -> list[Altered]:
    """Documents that are something else alone, without what training mode does to a batch."""
    training = is_training(examination.call.model)
    with evaluating(examination.call.model) if training else nullcontext():
        still = _again(examination, examination.batch) if training else examination
        found = _or_skip("alone", skipped, lambda: still.altered(still.layout.documents))
    return found or []


def _judge(pair: Pair, moved: tuple[Effects, float] | None) -> Pair:
    if moved is None or pair.kind != "noise":
        return pair
    differences, tolerance = moved
    difference = differences.get((pair.source, pair.target), 0.0)
    kind = "leak" if difference > tolerance else pair.kind
    return replace(pair, kind=kind, float32_difference=difference)


def _again(examination: Examination, batch: Batch) -> Examination:
    return examine(examination.call, batch, examination.layout, examination.options)


def _or_skip(name: str, skipped: dict[str, str], check: Callable[[], Found]) -> Found | None:
    try:
        return check()
    except ModelError as error:
        skipped[name] = str(error)
        return None
