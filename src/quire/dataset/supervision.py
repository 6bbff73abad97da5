"""What the model learns from: fragments and groups with a label that is trained."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.dataset.sources import without
from quire.documents import Documents
from quire.plan.fragments import Fragments
from quire.plan.strategies import Supervised

IGNORE = -100


def supervised_by_labels(documents: Documents) -> Supervised | None:
    """A judge of fragments: whether any given label in them is trained.

    Documents of one token stay: no label of theirs is a target, whatever it says.
    """
    if "labels" not in documents.columns:
        return None
    labels = documents.columns["labels"].to_numpy(zero_copy_only=False)
    counter = np.int32 if len(labels) <= np.iinfo(np.int32).max else np.int64
    trained = np.zeros(len(labels) + 1, dtype=counter)
    np.cumsum(labels != IGNORE, out=trained[1:])

    def supervised(fragments: Fragments) -> npt.NDArray[np.bool]:
        at = documents.offsets[fragments.documents]
        one_token = documents.lengths[fragments.documents] == 1
        counts = trained[at + fragments.stops] - trained[at + fragments.starts]
        taught: npt.NDArray[np.bool] = (counts > 0) | one_token
        return taught

    return supervised


def teaching_groups(
    documents: Documents, groups: npt.NDArray[np.int64]
) -> tuple[Documents, npt.NDArray[np.int64]]:
    """The documents of all groups in which any of them teaches something, and their groups.

    A member that teaches nothing stays with the others: a group is whole, or out.
    """
    supervised = supervised_by_labels(documents)
    if supervised is None:
        return documents, groups
    every = np.arange(len(documents))
    whole = Fragments(documents=every, starts=np.zeros_like(every), stops=documents.lengths)
    silent = ~np.isin(groups, groups[supervised(whole)])
    return without(documents, silent, "unsupervised"), groups[~silent]
