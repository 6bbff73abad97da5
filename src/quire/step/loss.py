"""Weights that make a sum over all rows of all ranks the mean of a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from quire.errors import InvalidOption
from quire.plan.lengths import FloatArray, IntArray
from quire.step.arrays import joined
from quire.step.costs import sums
from quire.step.values import read_values

if TYPE_CHECKING:
    from quire.step.plan import StepPlan


def loss_weights(plan: StepPlan, mean_over: str, mask: Any) -> FloatArray:  # noqa: ANN401
    """A weight per token of all sequences; 0 for those that are in no row."""
    if mean_over not in ("tokens", "sequences"):
        raise InvalidOption(f"mean_over is {mean_over!r} but must be tokens or sequences")
    lengths = plan.lengths
    weights: FloatArray = _counted(mask, lengths) * np.repeat(plan.inverse >= 0, lengths)
    if mean_over == "tokens":
        weights /= weights.sum() or 1.0
        return weights
    counts = sums(np.repeat(np.arange(len(lengths)), lengths), weights, len(lengths))
    with_loss = counts > 0
    each = np.divide(1.0, counts * with_loss.sum(), out=np.zeros_like(counts), where=with_loss)
    weights *= np.repeat(each, lengths)
    return weights


def _counted(mask: Any, lengths: IntArray) -> FloatArray:  # noqa: ANN401
    """The weight of every token: 1, or its value in a mask of any form of values per token."""
    if mask is None:
        return np.ones(int(lengths.sum()))
    try:
        source = read_values(mask, lengths, "token")
    except InvalidOption as error:
        raise InvalidOption(f"mask: {error}") from error
    flat = joined(source.parts) if source.parts else source.flat
    flat = flat.detach().cpu().double() if hasattr(flat, "detach") else flat
    try:
        counted = np.asarray(flat, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"mask: {flat.dtype} values are not numbers") from error
    if counted.ndim != 1:
        raise InvalidOption(f"mask has shape {counted.shape} but must have a number per token")
    wrong = ~np.isfinite(counted) | (counted < 0)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InvalidOption(
            f"mask is {counted[first]} for token {first} but a weight must be finite and >= 0"
        )
    return counted
