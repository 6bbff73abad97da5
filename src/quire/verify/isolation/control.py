"""The positive control: whether the check could have seen a leak at all.

If the weights of a head or of an attention output are zero, no token depends on any other, and a
call that mixes documents looks like one that keeps them apart. So some effect must be visible: the
earlier part of a document is changed, and the logits of its later part have to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch

from quire.errors import ModelError
from quire.verify.isolation.documents import Batch, as_numpy
from quire.verify.isolation.effects import Experiment, largest_difference
from quire.verify.isolation.model_call import part
from quire.verify.isolation.report import Dependence, Diagnosis, Document, Pair

Halves: TypeAlias = tuple[Document, Document]

NO_GRADIENT = (
    "no gradient goes from a later token to an earlier one of its own document, so the lack of "
    "gradients between documents proves nothing"
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Control:
    """The documents that can be split, and the effect of their first parts on their second."""

    experiment: Experiment
    halves: tuple[Halves, ...]

    @classmethod
    def of(cls, experiment: Experiment) -> Control:
        """The control over all documents that can be split."""
        keep = experiment.options.keep_token_ids
        found = (
            halves(experiment.batch, document, keep) for document in experiment.documents.documents
        )
        return cls(experiment=experiment, halves=tuple(filter(None, found)))

    def difference(self, *, isolated: bool) -> float:
        """By how much a later part changes with its earlier part.

        The first difference beyond rounding, else the largest. All documents change at once if they
        are known to be isolated.
        """
        if isolated and self.halves:
            changed = self.experiment.changed_logits([earlier for earlier, _ in self.halves])
            return max(self._distance(changed, later) for _, later in self.halves)
        largest = 0.0
        for earlier, later in self.halves:
            changed = self.experiment.changed_logits([earlier])
            largest = max(largest, self._distance(changed, later))
            if largest > self.experiment.tolerance:
                break
        return largest

    def gradient(self) -> float:
        """The first gradient from a later part's logits to the embeddings of its earlier part."""
        return next(filter(None, self._gradients()), 0.0)

    def dependence(self, difference: float, gradient: float | None) -> Dependence:
        """Whether a later token depends on an earlier one, by the rules for pairs of documents."""
        if not self.halves:
            return "untestable"
        if not difference and not gradient:
            return "none"
        # Bits that change within rounding count if no gradient contradicts: bfloat16 rounds so
        # coarsely that few differences exceed it.
        return "none" if self.experiment.kind(difference, gradient) == "noise" else "shown"

    def _distance(self, changed: torch.Tensor, later: Document) -> float:
        return largest_difference(part(self.experiment.base, later), part(changed, later))

    def _gradients(self) -> Iterator[float]:
        call, batch = self.experiment.call, self.experiment.batch
        for earlier, later in self.halves:
            # A part without any gradient (fully masked, for example) says nothing about others.
            with suppress(ModelError):
                [found] = call.gradients(batch, [[later]])
                yield float(part(found, earlier).amax())


def halves(batch: Batch, document: Document, keep: tuple[int, ...] = ()) -> Halves | None:
    """The earlier and the later part of a document; None if no token follows one that may change.

    >>> document = Document(row=0, number=1, start=0, stop=3)
    >>> [str(half) for half in halves({"input_ids": np.array([[5, 6, 7]])}, document)]
    ['row 0 document 1 (tokens 0..0)', 'row 0 document 1 (tokens 1..2)']
    """
    tokens = as_numpy(batch["input_ids"])[document.row, document.start : document.stop - 1]
    changeable = np.flatnonzero(~np.isin(tokens, keep))
    if not len(changeable):
        return None
    split = document.start + int(changeable[(len(changeable) - 1) // 2]) + 1
    return replace(document, stop=split), replace(document, start=split)


def without_gradients(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs as they are judged if a gradient of zero proves nothing."""
    return [
        replace(pair, gradient=None, kind="unproven") if pair.kind == "noise" else pair
        for pair in pairs
    ]


def explain(dependence: Dependence) -> Diagnosis:
    """Why the check proves nothing, and what to check instead."""
    if dependence == "untestable":
        return Diagnosis(
            cause="no document of the batch has a token after one that may be changed, so nothing "
            "shows that this model depends on earlier tokens at all",
            remedy="check a batch that has documents of two tokens or more (on the command line: "
            "another --seed, or more --documents)",
        )
    return Diagnosis(
        cause="the output does not depend on earlier tokens at all, not even on those of its own "
        "document (a head or an attention output whose weights are zero?); a leak could not "
        "have been seen",
        remedy="give a model with trained or random weights and make the same call",
    )
