"""What a sequence costs: linear in its tokens, and quadratic for attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption
from quire.plan.lengths import FloatArray, IntArray

PER_TOKEN, PER_PAIR = 1.0, 2e-5
"""As `attention_costs` has them."""

Cost: TypeAlias = (
    tuple[float, float] | Mapping[str, object] | Callable[[IntArray], npt.ArrayLike] | object
)
"""``(linear, quadratic)``, a model's config, or a function of the lengths."""


def sequence_costs(lengths: IntArray, cost: Cost | None = None) -> FloatArray:
    """The cost of sequences of these lengths.

    >>> sequence_costs(np.array([2, 4]), (10, 1)).tolist()
    [24.0, 56.0]
    """
    tokens = lengths.astype(np.float64)
    with np.errstate(over="ignore"):
        if callable(cost):
            costs = _checked(cost(lengths), lengths)
        else:
            linear, quadratic = (PER_TOKEN, PER_PAIR) if cost is None else _coefficients(cost)
            costs = linear * tokens + quadratic * (tokens * tokens)
        total = costs.sum()
    if not np.isfinite(total):
        raise InvalidOption(
            f"the costs of the sequences sum to {total}; scale the cost down, only ratios matter"
        )
    return costs


def sums(groups: IntArray, costs: FloatArray, number: int) -> FloatArray:
    """The sum of the costs of each group, added in their order."""
    added: FloatArray = np.bincount(groups, costs, number).astype(np.float64)
    return added


def model_cost(config: object) -> tuple[float, float]:
    """Operations of a forward pass for each token, and for each square of a sequence's length.

    ``config`` is a transformers config, or a mapping with its names: ``hidden_size`` and
    ``num_hidden_layers``; ``num_attention_heads``, ``num_key_value_heads``, ``head_dim``,
    ``intermediate_size`` and ``vocab_size`` where they are known.

    >>> model_cost({"hidden_size": 4096, "num_hidden_layers": 1, "intermediate_size": 10922})
    (402636800.0, 8192.0)
    """
    if hasattr(config, "get_text_config"):  # of a model that also sees or hears
        config = config.get_text_config()
    hidden, layers = _size(config, "hidden_size"), _size(config, "num_hidden_layers")
    heads = _size(config, "num_attention_heads", 1)
    head = _size(config, "head_dim", hidden // heads)
    queries = heads * head
    keys = _size(config, "num_key_value_heads", heads) * head
    inner = _size(config, "intermediate_size", 4 * hidden)
    vocabulary = _size(config, "vocab_size", 0)
    per_layer = 2 * hidden * (2 * queries + 2 * keys) + 6 * hidden * inner
    return float(layers * per_layer + 2 * hidden * vocabulary), float(2 * layers * queries)


def _coefficients(cost: Cost) -> tuple[float, float]:
    if not isinstance(cost, tuple | list):
        return model_cost(cost)
    if len(cost) != 2:
        raise InvalidOption(f"cost has {len(cost)} numbers but must be (linear, quadratic)")
    for name, value in zip(("linear", "quadratic"), cost, strict=True):
        if isinstance(value, bool) or not isinstance(value, Real) or not _is_finite(value):
            raise InvalidOption(
                f"cost=(linear, quadratic) has {name} {value!r} but it must be finite and >= 0"
            )
    return float(cost[0]), float(cost[1])


def _is_finite(value: Real) -> bool:
    try:
        return 0 <= float(value) < np.inf
    except OverflowError:  # an integer
        return False


def _checked(costs: object, lengths: IntArray) -> FloatArray:
    try:
        array = np.asarray(costs)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    if array.shape != lengths.shape or array.dtype.kind not in "iuf":
        raise InvalidOption(
            f"the cost function returned {array.dtype} of shape {array.shape} for {len(lengths)} "
            "lengths; it must return one number for each"
        )
    array = array.astype(np.float64)
    wrong = ~np.isfinite(array) | (array < 0)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InvalidOption(
            f"the cost function returned {array[first]} for a length of {lengths[first]}, but a "
            "cost must be finite and >= 0"
        )
    return array


def _size(config: object, name: str, default: int | None = None) -> int:
    named = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
    value = default if named is None else named
    least = 0 if default == 0 else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidOption(
            f"cost is a {type(config).__name__} whose {name} is {value!r}; pass a model config "
            "with that integer, cost=(linear, quadratic), or a function of the lengths"
        )
    return value
