"""One call of a model under examination: perturbed, differentiated, and document by document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from quire.errors import ModelError
from quire.verify.alone import alone
from quire.verify.calls import Call, Model
from quire.verify.causes import attention_backend
from quire.verify.layout import Batch, Layout
from quire.verify.options import IsolationOptions
from quire.verify.perturbation import largest_difference, perturbed
from quire.verify.report import Altered, Document, Kind, Pair

Gradients: TypeAlias = dict[Document, torch.Tensor]
Differences: TypeAlias = dict[tuple[Document, Document], float]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Examination:
    """A call, and the logits and tolerance that everything is compared with."""

    call: Call
    batch: Batch
    layout: Layout
    options: IsolationOptions
    base: torch.Tensor
    tolerance: float

    def gradients(self) -> Gradients:
        """Gradients `[B, T]` by target; raises ModelError where the backend has none."""
        documents = self.layout.documents
        return dict(zip(documents, self.call.gradients(self.batch, documents), strict=True))

    def differences(self, sources: Sequence[Document]) -> Differences:
        """By how much each document's logits move when one of the sources changes."""
        return {
            (source, target): largest_difference(part(self.base, target), part(moved, target))
            for source, moved in ((source, self.moved_by(source)) for source in sources)
            for target in self.layout.documents
            if target != source
        }

    def pairs(self, differences: Differences, gradients: Gradients) -> list[Pair]:
        """The pairs that are not independent, bit for bit."""
        found = []
        for (source, target), difference in differences.items():
            gradient = _gradient_at(source, gradients.get(target))
            if difference or gradient:
                found.append(
                    Pair(
                        source=source,
                        target=target,
                        difference=difference,
                        gradient=gradient,
                        kind=self.kind(difference, gradient),
                    )
                )
        return found

    def altered(self, documents: Sequence[Document]) -> list[Altered]:
        """Those of the documents that are something else alone."""
        sizes = {document: self._distance_from_alone(document) for document in documents}
        return [
            Altered(document=document, difference=size)
            for document, size in sizes.items()
            if size > self.tolerance
        ]

    def moved_by(self, source: Document) -> torch.Tensor:
        """The logits after a change of the source, which may be a part of a document."""
        return self.call.logits(perturbed(self.batch, source, self.options.keep_token_ids))

    def kind(self, difference: float, gradient: float | None) -> Kind:
        """What a difference between two documents is, and the gradient that goes with it."""
        if gradient or difference > self.tolerance:
            return "leak"
        return "unproven" if gradient is None else "noise"

    def _distance_from_alone(self, document: Document) -> float:
        single = alone(self.batch, document, attention_backend(self.call.model) is not None)
        return largest_difference(part(self.base, document), self.call.logits(single)[0])


def examine(call: Call, batch: Batch, layout: Layout, options: IsolationOptions) -> Examination:
    """The examination of a call that can be repeated and gives finite logits."""
    base = call.logits(batch)
    _require_finite(base, layout)
    tolerance = _tolerance(call.model, base, options)
    drift = largest_difference(base, call.logits(batch))
    if drift > tolerance:
        raise ModelError(
            f"two identical calls differ by {drift:.3g}, where rounding explains {tolerance:.3g}; "
            "switch off dropout and other randomness (model.eval())"
        )
    return Examination(
        call=call, batch=batch, layout=layout, options=options, base=base, tolerance=tolerance
    )


def _require_finite(logits: torch.Tensor, layout: Layout) -> None:
    for document in layout.documents:
        if not torch.isfinite(part(logits, document)).all():
            raise ModelError(
                f"the logits of {document} are not finite, so nothing can be compared; "
                "try dtype float32 and look at the weights"
            )


def _tolerance(model: Model, logits: torch.Tensor, options: IsolationOptions) -> float:
    scale = float(logits.double().abs().nan_to_num(nan=0.0, posinf=0.0).amax())
    if options.tolerance is not None:
        return options.tolerance * scale
    dtypes = {torch.float32, logits.dtype}
    if isinstance(model, torch.nn.Module):
        dtypes |= {parameter.dtype for parameter in model.parameters()}
    epsilon = max(torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point)
    return 32 * epsilon * scale


def _gradient_at(source: Document, gradient: torch.Tensor | None) -> float | None:
    if gradient is None:
        return None
    return float(part(gradient, source).amax())


def part(values: torch.Tensor, document: Document) -> torch.Tensor:
    """What belongs to one document of values `[B, T, …]`."""
    return values[document.row, document.start : document.stop]
