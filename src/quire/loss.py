"""Denominators of a packed loss: what the loss of one optimizer step is divided by.

The loss of a step is ``(weights * losses).sum() / denominator``. Weights and denominator follow
from labels and boundaries, so they are the same however documents are packed, padded, split into
microbatches or distributed over ranks; the denominator is a sum over all of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidRow
from quire.labels import Floats, fragment_numbers, loss_weights

DocumentWeights: TypeAlias = npt.ArrayLike | Sequence[npt.ArrayLike]
"""One for each document of a batch, or a list for each row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossTotals:
    """Counts of some rows; those of microbatches and ranks add up to those of the step.

    >>> LossTotals(tokens=3, documents=1) + LossTotals(tokens=2, documents=2)
    LossTotals(tokens=5, documents=3, weight=0.0)
    """

    tokens: int = 0
    """Targets: labels that are learned."""
    documents: int = 0
    """Fragments with at least one target."""
    weight: float = 0.0
    """The sum of the weights of all targets, by which the loss is divided."""

    def __add__(self, other: LossTotals) -> LossTotals:
        return LossTotals(
            tokens=self.tokens + other.tokens,
            documents=self.documents + other.documents,
            weight=self.weight + other.weight,
        )

    @classmethod
    def sum(cls, parts: Iterable[LossTotals]) -> LossTotals:
        """The totals of all parts together."""
        return sum(parts, start=cls())


def packed_weights(
    labels: npt.ArrayLike,
    segment_ids: npt.ArrayLike,
    *,
    averaging: str = "token",
    document_weights: DocumentWeights | None = None,
    ignore_index: int = -100,
) -> tuple[Floats, LossTotals]:
    """The weight of every label, shape `[B, T]`, and the totals of these rows.

    `averaging` is that of `quire.labels.loss_weights`: ``token`` is the mean over all targets,
    ``document`` the mean over documents of the mean over their targets. `document_weights`, one for
    each fragment in the order of rows, multiply the weights of its targets. They change how much a
    document counts, so the denominator has them too. A list for each row may leave out a last
    fragment without targets: padding, which position ids do not tell apart from a document.

    >>> labels, segments = [[-100, 7, 7, -100, 7, -100]], [[1, 1, 1, 2, 2, 0]]
    >>> packed_weights(labels, segments, averaging="document", document_weights=[3, 1])
    (array([[0. , 1.5, 1.5, 0. , 1. , 0. ]]), LossTotals(tokens=3, documents=2, weight=4.0))
    """
    weights = loss_weights(labels, segment_ids, averaging=averaging, ignore_index=ignore_index)
    targets, fragments = weights > 0, fragment_numbers(np.asarray(segment_ids))
    num_documents = len(np.unique(fragments[targets]))
    if document_weights is not None:
        given = _flat(document_weights, np.asarray(segment_ids), targets)
        weights = weights * _of_tokens(given, np.asarray(segment_ids), fragments)
    totals = LossTotals(
        tokens=int(targets.sum()), documents=num_documents, weight=float(weights.sum())
    )
    return weights, totals


def _flat(
    given: DocumentWeights, segments: npt.NDArray[np.integer], targets: npt.NDArray[np.bool_]
) -> npt.ArrayLike:
    """One weight for each fragment; the padding that lists of rows leave out weighs nothing."""
    if isinstance(given, np.ndarray) or not all(np.ndim(one) for one in given):  # type: ignore[union-attr]
        return given  # type: ignore[return-value]
    rows: Sequence[npt.ArrayLike] = given  # type: ignore[assignment]
    if segments.ndim != 2 or len(rows) != len(segments):
        raise InvalidRow(
            f"document_weights have {len(rows)} lists, but the batch has shape {segments.shape}; "
            "give one list for each row"
        )
    every: list[float] = []
    for number, (weights, row, is_target) in enumerate(zip(rows, segments, targets, strict=True)):
        own, found = np.asarray(weights, dtype=np.float64).tolist(), np.unique(row[row != 0])
        if len(own) == len(found) - 1 and not is_target[row == found[-1]].any():
            own.append(0.0)
        if len(own) != len(found):
            raise InvalidRow(
                f"document_weights have {len(own)} weights for row {number}, which has "
                f"{len(found)} documents; give one weight for each"
            )
        every += own
    return every


def _of_tokens(
    given: npt.ArrayLike, segments: npt.NDArray[np.integer], fragments: npt.NDArray[np.int64]
) -> Floats:
    """For every token, the weight that was given for its fragment; 0 on padding."""
    weights = np.asarray(given, dtype=np.float64)
    numbers = np.unique(fragments[segments != 0])
    if weights.shape != numbers.shape:
        raise InvalidRow(
            f"document_weights have shape {weights.shape}, but the rows have {len(numbers)} "
            "documents; give one weight for each, in the order of rows, or a list for each row if "
            "its padding counts as a document here"
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidRow(
            f"document_weights contain {weights[~(np.isfinite(weights) & (weights >= 0))][0]}, but "
            "a weight is a finite number >= 0"
        )
    by_number = np.zeros(int(fragments.max(initial=0)) + 1)
    by_number[numbers] = weights
    of_tokens: Floats = by_number[fragments]
    return of_tokens
