"""Changing documents, and measuring what moved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from quire.verify.calls import with_ids
from quire.verify.layout import Batch, as_numpy
from quire.verify.report import Document

CROWDED = range(1, 4)
"""Ways to change documents in which all their tokens become one id: a crowd on one expert, say."""


def perturbed(
    batch: Batch, sources: Sequence[Document], keep: tuple[int, ...] = (), way: int = 0
) -> dict[str, object]:
    """The batch with every token of these documents replaced by another id of the same batch.

    Ids of the batch are known to be valid ones. Those in `keep` (image placeholders, say) are
    neither replaced nor used. Each of the `CROWDED` ways has one id for all tokens.
    """
    ids = as_numpy(batch["input_ids"]).astype(np.int64)
    others = _one_for_all(ids, keep, way) if way in CROWDED else _others(ids, keep)
    for source in sources:
        places = (source.row, slice(source.start, source.stop))
        ids[places] = others[places]
    return with_ids(batch, ids)


def largest_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference between two tensors, 0.0 only if they are equal bit for bit."""
    if torch.equal(left, right):
        return 0.0
    distance = (left.double() - right.double()).abs().amax()
    return float(distance.nan_to_num(nan=float("inf")))


def _others(ids: npt.NDArray[np.int64], keep: tuple[int, ...]) -> npt.NDArray[np.int64]:
    known = np.setdiff1d(ids, keep)
    if len(known) == 1:  # a neighbour is the only other id of which we can know anything
        known = np.array([max(known[0] - 1, 0), max(known[0], 1)])
    place = np.searchsorted(known, ids)
    changed = known[(place + 1) % len(known)] if len(known) else ids
    return np.where(np.isin(ids, keep), ids, changed)


def _one_for_all(
    ids: npt.NDArray[np.int64], keep: tuple[int, ...], way: int
) -> npt.NDArray[np.int64]:
    known = np.setdiff1d(ids, keep)
    if not len(known):
        return ids
    return np.where(np.isin(ids, keep), ids, known[len(known) * way // CROWDED.stop])
