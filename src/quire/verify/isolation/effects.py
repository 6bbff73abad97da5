"""How documents affect each other: by changed tokens, by gradients, and compared with alone.

The positive control shows that an effect could have been seen at all: if the weights of a head or
of an attention output are zero, no token depends on any other, and a call that mixes documents
looks like one that keeps them apart. So the earlier part of a document is changed, and the logits
of its later part have to change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import TypeAlias

import numpy as np
import torch

from quire.errors import ModelError
from quire.verify.isolation.documents import (
    Batch,
    BatchDocuments,
    as_numpy,
    like,
    single_document,
)
from quire.verify.isolation.model import Model, attention_backend, is_training
from quire.verify.isolation.model_call import ModelCall, part
from quire.verify.isolation.report import (
    Altered,
    Dependence,
    Document,
    IsolationOptions,
    Kind,
    Pair,
)

Effects: TypeAlias = dict[tuple[Document, Document], float]
"""How much a source affects a target; pairs without any effect are left out."""
Groups: TypeAlias = Iterable[Sequence[Document]]
CROWDED = range(1, 4)
"""Ways to change documents in which all their tokens become one id, which crowds one expert."""


class Experiment:
    """A call, and the logits and tolerance that its variations are compared with."""

    def __init__(
        self, call: ModelCall, batch: Batch, documents: BatchDocuments, options: IsolationOptions
    ) -> None:
        """Call the model; ModelError unless that is reproducible and the logits are finite."""
        self.call = call
        self.batch = batch
        self.documents = documents
        self.options = options
        self.base = call.logits(batch)
        for document in documents.documents:
            if not torch.isfinite(part(self.base, document)).all():
                raise ModelError(
                    f"the logits of {document} are not finite, so nothing can be compared; "
                    "try dtype float32 and check the weights"
                )
        self.tolerance = _tolerance(call.model, self.base, options)
        drift = largest_difference(self.base, call.logits(batch))
        if drift > self.tolerance:
            raise ModelError(
                f"two identical calls differ by {drift:.3g}, more than rounding explains "
                f"({self.tolerance:.3g}); switch off what is random in the model (model.eval())"
            )

    def repeated(self, batch: Batch) -> Experiment:
        """The same experiment with another form of the batch, or after a change of the model."""
        return Experiment(self.call, batch, self.documents, self.options)

    def differences(self, *, detailed: bool = True) -> Effects:
        """By how much documents' logits change when another document, or padding, changes.

        Many change at once first. If that has an effect, and details are wanted, they change one by
        one; an effect that none has by itself stays with its whole group.
        """
        sources = self.documents.documents + self.documents.padding
        return _refined(self._differences, sources, detailed, self.tolerance)

    def gradients(self, *, detailed: bool = True) -> Effects:
        """Gradients from a target's logits to a source's embeddings, in the same two steps.

        Raises ModelError if the backend has none.
        """
        return _refined(self._gradients, self.documents.documents, detailed, rounding=0.0)

    def pairs(self, differences: Effects, gradients: Effects | None) -> list[Pair]:
        """The pairs that are not independent, bit for bit; None if gradients were not taken."""
        found = []
        for source, target in sorted({**differences, **(gradients or {})}):
            difference = differences.get((source, target), 0.0)
            gradient = None if gradients is None else gradients.get((source, target), 0.0)
            kind = self._kind(difference, gradient)
            pair = Pair(
                source=source, target=target, difference=difference, gradient=gradient, kind=kind
            )
            found.append(pair)
        return found

    def altered(self) -> list[Altered]:
        """The documents with other logits in the row than alone."""
        own_masks = attention_backend(self.call.model) is not None
        found = []
        for document in self.documents.documents:
            alone = self.call.logits(single_document(self.batch, document, own_masks))[0]
            size = largest_difference(part(self.base, document), alone)
            if size > self.tolerance:
                found.append(Altered(document=document, difference=size))
        return found

    def own_difference(self, *, isolated: bool) -> float:
        """By how much the later part of a document changes with its earlier part.

        The first difference beyond rounding, else the largest. All documents change at once if they
        are known to be isolated.
        """
        halves = self._halves()
        largest = 0.0
        for group in [halves] if isolated else [[pair] for pair in halves]:
            changed = self._changed_logits([earlier for earlier, _ in group])
            largest = max([largest, *(self._distance(changed, later) for _, later in group)])
            if largest > self.tolerance:
                break
        return largest

    def own_gradient(self) -> float | None:
        """The first gradient from a later part's logits to the embeddings of its earlier part."""
        halves = self._halves()
        for earlier, later in halves:
            # A part without any gradient (fully masked, for example) says nothing about others.
            with suppress(ModelError):
                [found] = self.call.gradients(self.batch, [[later]])
                if size := float(part(found, earlier).amax()):
                    return size
        return 0.0 if halves else None

    def dependence(self, difference: float, gradient: float | None) -> Dependence:
        """Whether a later token depends on an earlier one, by the rules for pairs of documents."""
        if not self._halves():
            return "untestable"
        if not difference and not gradient:
            return "none"
        # Bits that change within rounding count if no gradient contradicts: bfloat16 rounds so
        # coarsely that few differences exceed it.
        return "none" if self._kind(difference, gradient) == "noise" else "shown"

    def _kind(self, difference: float, gradient: float | None) -> Kind:
        """What a difference between two documents and its gradient mean."""
        if gradient or difference > self.tolerance:
            return "leak"
        return "unproven" if gradient is None else "noise"

    def _halves(self) -> list[tuple[Document, Document]]:
        """The earlier and the later part of every document that can be split."""
        keep = self.options.keep_token_ids
        found = (halves(self.batch, document, keep) for document in self.documents.documents)
        return [pair for pair in found if pair is not None]

    def _changed_logits(self, sources: Sequence[Document], way: int = 0) -> torch.Tensor:
        """The logits after a change of the sources, which may be parts of documents."""
        return self.call.logits(perturbed(self.batch, sources, self.options.keep_token_ids, way))

    def _distance(self, changed: torch.Tensor, target: Document) -> float:
        return largest_difference(part(self.base, target), part(changed, target))

    def _differences(self, groups: Groups) -> Effects:
        found: Effects = {}
        # In training mode documents are not compared with themselves alone, which would show that
        # tokens were dropped for lack of expert capacity, so they are changed in more ways.
        ways = (0, *CROWDED) if is_training(self.call.model) else (0,)
        for group, way in product(groups, ways):
            changed = self._changed_logits(group, way)
            for target in self.documents.documents:
                if target not in group:
                    size = self._distance(changed, target)
                    _keep_largest(found, product(group, [target]), size)
        return found

    def _gradients(self, groups: Groups) -> Effects:
        found: Effects = {}
        groups = list(groups)
        for group, gradient in zip(groups, self.call.gradients(self.batch, groups), strict=True):
            for source in self.documents.documents + self.documents.padding:
                if source not in group:
                    size = float(part(gradient, source).amax())
                    _keep_largest(found, product([source], group), size)
        return found


def halvings(documents: Sequence[Document]) -> Iterator[list[Document]]:
    """Groups such that for any two documents, one group holds the first and not the second.

    By the binary digits of their numbers: 2 · log2(n) groups instead of n single documents.

    >>> documents = [Document(row=row, number=1, start=0, stop=1) for row in range(5)]
    >>> [[document.row for document in group] for group in halvings(documents)]
    [[0, 2, 4], [1, 3], [0, 1, 4], [2, 3], [0, 1, 2, 3], [4]]
    """
    for digit, value in product(range((len(documents) - 1).bit_length()), (0, 1)):
        yield [document for n, document in enumerate(documents) if n >> digit & 1 == value]


def perturbed(
    batch: Batch, sources: Sequence[Document], keep: tuple[int, ...] = (), way: int = 0
) -> dict[str, object]:
    """The batch with every token of these documents replaced by another id of the same batch.

    Ids of the batch are known to be valid. Those in `keep` (image placeholders, for example) are
    neither replaced nor used. Each of the `CROWDED` ways has one id for all tokens.
    """
    ids = as_numpy(batch["input_ids"]).astype(np.int64)
    known = np.setdiff1d(ids, keep)
    if way in CROWDED:
        others = np.full_like(ids, known[len(known) * way // CROWDED.stop])
    else:
        if len(known) == 1:  # a neighbor is the only other id that is likely to be valid
            known = np.array([max(known[0] - 1, 0), max(known[0], 1)])
        others = known[(np.searchsorted(known, ids) + 1) % len(known)]
    others = np.where(np.isin(ids, keep), ids, others)
    for source in sources:
        tokens = (source.row, slice(source.start, source.stop))
        ids[tokens] = others[tokens]
    return {**batch, "input_ids": like(batch["input_ids"], ids)}


def halves(
    batch: Batch, document: Document, keep: tuple[int, ...] = ()
) -> tuple[Document, Document] | None:
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


def largest_difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference between two tensors, 0.0 only if they are equal bit for bit."""
    if torch.equal(left, right):
        return 0.0
    distance = (left.double() - right.double()).abs().amax()
    return float(distance.nan_to_num(nan=float("inf")))


def _refined(
    measure: Callable[[Groups], Effects],
    documents: Sequence[Document],
    detailed: bool,
    rounding: float,
) -> Effects:
    groups = measure(halvings(documents))
    if not groups or not detailed:
        return groups
    singles = measure([document] for document in documents)
    # Where rounding depends on the batch, a single document has some effect on almost any CPU;
    # that must not replace an effect which only several documents have together.
    is_lost = _largest(singles) <= rounding < _largest(groups)
    return groups if is_lost or not singles else singles


def _largest(effects: Effects) -> float:
    return max(effects.values(), default=0.0)


def _keep_largest(found: Effects, pairs: Iterable[tuple[Document, Document]], size: float) -> None:
    if size:
        found.update({pair: max(found.get(pair, 0.0), size) for pair in pairs})


def _tolerance(model: Model, logits: torch.Tensor, options: IsolationOptions) -> float:
    scale = float(logits.abs().nan_to_num(nan=0, posinf=0).amax())
    if options.tolerance is not None:
        return options.tolerance * scale
    dtypes = {torch.float32, logits.dtype}
    if isinstance(model, torch.nn.Module):
        dtypes |= {parameter.dtype for parameter in model.parameters()}
    epsilon = max(torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point)
    return 32 * epsilon * scale
