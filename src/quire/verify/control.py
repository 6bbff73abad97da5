"""The positive control: whether the check could have seen a leak at all.

Where the weights of a head or of an attention output are zero, no token notices any other, and a
call that mixes documents looks like one that keeps them apart. So something must be noticed, and
what ought to be noticed is the document's own past: its earlier part is changed, and its later
part has to move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch

from quire.errors import ModelError
from quire.verify.examination import Examination, part
from quire.verify.layout import Batch, as_numpy
from quire.verify.perturbation import largest_difference
from quire.verify.report import Dependence, Diagnosis, Document, Pair

Halves: TypeAlias = tuple[Document, Document]

DEAF_GRADIENTS = (
    "no gradient goes from a later token to an earlier one of its own document, so that none goes "
    "from document to document says nothing"
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Control:
    """The documents that can be parted, and what is noticed from part to part."""

    examination: Examination
    halves: tuple[Halves, ...]

    def difference(self, *, isolated: bool) -> float:
        """By how much a later part moves with its earlier one: the first beyond rounding, else the
        largest. Where documents are known to be isolated, all change at once."""
        if isolated and self.halves:
            moved = self.examination.moved_by([earlier for earlier, _ in self.halves])
            return max(self._distance(moved, later) for _, later in self.halves)
        largest = 0.0
        for earlier, later in self.halves:
            largest = max(largest, self._distance(self.examination.moved_by([earlier]), later))
            if largest > self.examination.tolerance:
                break
        return largest

    def gradient(self) -> float:
        """The first gradient from a later part's logits to the embeddings of its earlier one."""
        return next(filter(None, self._gradients()), 0.0)

    def _distance(self, moved: torch.Tensor, later: Document) -> float:
        return largest_difference(part(self.examination.base, later), part(moved, later))

    def _gradients(self) -> Iterator[float]:
        call, batch = self.examination.call, self.examination.batch
        for earlier, later in self.halves:
            # A part without any gradient (fully masked, say) speaks for no other.
            with suppress(ModelError):
                [found] = call.gradients(batch, [[later]])
                yield float(part(found, earlier).amax())


def make_control(examination: Examination) -> Control:
    """The control of an examination, over all documents that can be parted."""
    keep = examination.options.keep_token_ids
    documents = examination.layout.documents
    found = (halves(examination.batch, document, keep) for document in documents)
    return Control(examination=examination, halves=tuple(filter(None, found)))


def halves(batch: Batch, document: Document, keep: tuple[int, ...] = ()) -> Halves | None:
    """The earlier and the later part of a document; None where no token follows one that may
    change.

    >>> document = Document(row=0, number=1, start=0, stop=3)
    >>> [str(half) for half in halves({"input_ids": np.array([[5, 6, 7]])}, document)]
    ['row 0 document 1 (tokens 0..0)', 'row 0 document 1 (tokens 1..2)']
    """
    tokens = as_numpy(batch["input_ids"])[document.row, document.start : document.stop - 1]
    places = np.flatnonzero(~np.isin(tokens, keep))
    if not len(places):
        return None
    split = document.start + int(places[(len(places) - 1) // 2]) + 1
    return replace(document, stop=split), replace(document, start=split)


def dependence(control: Control, difference: float, gradient: float | None) -> Dependence:
    """Whether a later token noticed an earlier one, by the rules that pairs of documents have."""
    if not control.halves:
        return "untestable"
    if not difference and not gradient:
        return "none"
    # Bits that move within rounding count where no gradient contradicts: bfloat16 rounds so
    # coarsely that little goes beyond it.
    return "none" if control.examination.kind(difference, gradient) == "noise" else "shown"


def without_witness(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs as they stand where a gradient of zero says nothing."""
    return [
        replace(pair, gradient=None, kind="unproven") if pair.kind == "noise" else pair
        for pair in pairs
    ]


def explain(found: Dependence) -> Diagnosis:
    """Why the check proves nothing, and what to check instead."""
    if found == "untestable":
        cause = "no document of the batch has a token after one that may be changed, so nothing "
        return Diagnosis(
            cause=cause + "shows that this model notices earlier tokens at all",
            remedy="check a batch that has documents of two tokens or more (of the command: "
            "another --seed, or more --documents)",
            confirmed=False,
        )
    return Diagnosis(
        cause="the output does not depend on earlier tokens at all, not even on those of its own "
        "document (a head or an attention output whose weights are zero?); a leak could not "
        "have been seen",
        remedy="give a model with trained or random weights and make the same call",
        confirmed=False,
    )
