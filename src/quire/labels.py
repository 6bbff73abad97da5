"""Labels and loss weights: what every token is trained to predict, and how much it counts.

Labels here are *unshifted*: the label of a position is the token at that position, which the
position before it predicts (transformers shifts labels itself). `shift=True` moves each label to
the position that predicts it.

A packed loss equals the unpacked one when it is ``(weights * loss).sum() / total``, where `total`
is the sum of the weights over the whole optimizer step: all rows, microbatches and ranks. A weight
depends only on its own fragment, so it does not matter how rows are split into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, InvalidRow, unknown_name
from quire.options import validate

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelOptions:
    """Which tokens are targets; padding never is."""

    mask_boundary_loss: bool = True
    """Exclude the first token of every fragment, as another document precedes it."""
    train_on_eos: bool = True
    """Include `eos_token_id` in the targets."""
    eos_token_id: int | None = None
    ignore_index: int = -100
    """The label of a position that is not a target."""

    def __post_init__(self) -> None:
        validate(self)
        if not self.train_on_eos and self.eos_token_id is None:
            raise InvalidOption(
                "train_on_eos is False but eos_token_id is not set; set it to the token to exclude"
            )


DEFAULT = LabelOptions()


def causal_labels(
    tokens: npt.ArrayLike,
    segment_ids: npt.ArrayLike,
    options: LabelOptions = DEFAULT,
    *,
    loss_mask: npt.ArrayLike | None = None,
    shift: bool = False,
) -> Ints:
    """The labels of rows `[..., T]`, `ignore_index` where nothing is learned.

    `tokens` may be input ids or existing labels; negative values are not learned. `loss_mask` is
    true at the tokens to learn, such as those of the assistant in a chat.

    >>> causal_labels([10, 11, 2, 20, 2, 0], [1, 1, 1, 2, 2, 0])
    array([-100,   11,    2, -100,    2, -100])
    >>> causal_labels([10, 11, 2, 20, 2, 0], [1, 1, 1, 2, 2, 0], shift=True)
    array([  11,    2, -100,    2, -100, -100])
    """
    ids = _require_integers(tokens, "tokens")
    segments = _require_shape(_require_integers(segment_ids, "segment_ids"), ids, "segment_ids")
    targets = (segments != 0) & (ids >= 0)  # -100 in existing labels, whatever ignore_index is
    if options.mask_boundary_loss:
        targets[..., 1:] &= segments[..., 1:] == segments[..., :-1]
        targets[..., :1] = False
    if not options.train_on_eos:
        targets &= ids != options.eos_token_id
    if loss_mask is not None:
        targets &= _require_shape(_require_flags(loss_mask), ids, "loss_mask")
    # Widened first: stored ids often have 16 bits, where -100 would silently become 65436.
    labels = np.where(targets, np.asarray(ids, np.int64), options.ignore_index)
    return shift_left(labels, options.ignore_index) if shift else labels


def shift_left(values: npt.NDArray[Number], fill: Number | float) -> npt.NDArray[Number]:
    """The values, each at the position that predicts it; the last position gets `fill`.

    Use `ignore_index` for labels and 0 for weights.

    >>> shift_left(np.array([[1, 2, 3]]), -100)
    array([[   2,    3, -100]])
    """
    shifted = np.empty_like(values)
    shifted[..., :-1] = values[..., 1:]
    shifted[..., -1:] = fill
    return shifted


def loss_weights(
    labels: npt.ArrayLike,
    segment_ids: npt.ArrayLike,
    *,
    averaging: str = "token",
    ignore_index: int = -100,
) -> Floats:
    """The weight of every label in the loss, 0 where there is none; shape `[B, T]`.

    With n targets in a fragment: ``token`` 1 (all tokens count equally), ``document`` 1 / n (all
    documents count equally), ``sqrt`` 1 / sqrt(n) (in between). Divide the sum over a step by the
    sum of its weights. Labels may be shifted or not.

    >>> loss_weights([[-100, 7, 7, -100, 7, 0]], [[1, 1, 1, 2, 2, 0]], averaging="document")
    array([[0. , 0.5, 0.5, 0. , 1. , 0. ]])
    """
    if averaging not in AVERAGINGS:
        raise unknown_name("averaging", averaging, AVERAGINGS)
    ids = _require_integers(labels, "labels")
    segments = _require_shape(_require_integers(segment_ids, "segment_ids"), ids, "segment_ids")
    fragments = fragment_numbers(segments)
    targets = (ids != ignore_index) & (segments != 0)
    num_targets = np.bincount(fragments.ravel(), targets.ravel())
    weights = AVERAGINGS[averaging](np.maximum(num_targets, 1))
    return np.where(targets, weights[fragments], 0.0)


AVERAGINGS: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType(
    {
        "token": np.ones_like,
        "document": lambda num_targets: 1 / num_targets,
        "sqrt": lambda num_targets: 1 / np.sqrt(num_targets),
    }
)


def fragment_numbers(segments: Ints) -> Ints:
    """A number for every fragment of the batch, the same at all its positions."""
    if (segments < 0).any():  # it would be mixed up with a fragment of another row
        raise InvalidRow(
            f"segment_ids contain {segments.min()}, but fragments have 1 or more and padding 0; "
            "number the fragments of each row from 1"
        )
    per_row = int(segments.max(initial=0)) + 1
    rows = np.arange(int(np.prod(segments.shape[:-1]))).reshape(*segments.shape[:-1], 1)
    return np.asarray(segments, np.int64) + rows * per_row


def _require_integers(values: npt.ArrayLike, name: str) -> Ints:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidRow(f"{name} are not rows of one length: {error}; pad them first") from None
    if array.dtype.kind not in "iu" or array.ndim == 0:
        raise InvalidRow(
            f"{name} have dtype {array.dtype} and shape {array.shape}, but must be rows of integers"
        )
    return array


def _require_flags(loss_mask: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    array = np.asarray(loss_mask)
    flags = array.astype(np.bool_)
    if array.dtype.kind not in "biu" or not np.array_equal(array, flags):
        raise InvalidRow(
            f"loss_mask of dtype {array.dtype} has values other than 0 and 1, but says for each "
            "token whether it is learned; pass weights to the loss instead"
        )
    return flags


def _require_shape(
    array: npt.NDArray[Number], like: npt.NDArray[np.generic], name: str
) -> npt.NDArray[Number]:
    if array.shape != like.shape:
        raise InvalidRow(
            f"{name} have shape {array.shape}, but the tokens have {like.shape}; "
            "give one value per token"
        )
    return array
