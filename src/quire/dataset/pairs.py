"""Preference pairs: two documents that share a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.dataset.documents import without
from quire.dataset.supervision import teaching_groups
from quire.documents import Documents
from quire.plan import Plan, PlanOptions
from quire.plan.groups import plan_groups


def planned_pairs(documents: Documents, options: PlanOptions) -> tuple[Documents, Plan]:
    """A plan in which the two documents of each pair share a row, and the documents in it."""
    documents = whole_pairs(documents)
    documents, pairs = teaching_groups(documents, documents.numbers >> 1)
    return documents, plan_groups(documents.lengths, pairs, options)


def whole_pairs(documents: Documents) -> Documents:
    """The documents without those whose other half has no token, which were not counted yet."""
    _, places, counts = np.unique(documents.numbers >> 1, return_inverse=True, return_counts=True)
    alone: npt.NDArray[np.bool] = counts[places] < 2
    return without(documents, alone, "empty")
