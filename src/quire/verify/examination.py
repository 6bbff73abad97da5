"""One call of a model under examination: perturbed, differentiated, and document by document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import torch

from quire.errors import ModelError
from quire.verify.alone import alone
from quire.verify.calls import Call, Model
from quire.verify.groups import halvings
from quire.verify.layout import Batch, Layout
from quire.verify.model_config import attention_backend
from quire.verify.model_state import is_training
from quire.verify.options import IsolationOptions
from quire.verify.perturbation import CROWDED, largest_difference, perturbed
from quire.verify.report import Altered, Document, Kind, Pair

Effects: TypeAlias = dict[tuple[Document, Document], float]
"""How much a target is affected by a source; pairs without any effect are left out."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Examination:
    """A call, and the logits and tolerance that everything is compared with."""

    call: Call
    batch: Batch
    layout: Layout
    options: IsolationOptions
    base: torch.Tensor
    tolerance: float

    def differences(self, sources: Sequence[Document], *, detailed: bool = True) -> Effects:
        """By how much documents' logits move when one of the sources changes.

        Many sources change at once first. Only if something moves, and if details are wanted,
        they change one by one; what then moves by no single one stays with its whole group.
        """
        found = self._moves(halvings(sources))
        if not found or not detailed:
            return found
        return self._moves([source] for source in sources) or found

    def gradients(self, *, detailed: bool = True) -> Effects:
        """Gradients from a target's logits to a source's embeddings, in the same two steps;
        raises ModelError where the backend has none."""
        documents = self.layout.documents
        found = self._slopes(list(halvings(documents)))
        if not found or not detailed:
            return found
        return self._slopes([[document] for document in documents]) or found

    def pairs(self, differences: Effects, gradients: Effects | None) -> list[Pair]:
        """The pairs that are not independent, bit for bit; None where gradients were not taken."""
        return [
            self._pair(
                pair,
                differences.get(pair, 0.0),
                None if gradients is None else gradients.get(pair, 0.0),
            )
            for pair in sorted({**differences, **(gradients or {})})
        ]

    def altered(self, documents: Sequence[Document]) -> list[Altered]:
        """Those of the documents that are something else alone."""
        sizes = {document: self._distance_from_alone(document) for document in documents}
        return [
            Altered(document=document, difference=size)
            for document, size in sizes.items()
            if size > self.tolerance
        ]

    def moved_by(self, sources: Sequence[Document], way: int = 0) -> torch.Tensor:
        """The logits after a change of the sources, which may be parts of documents."""
        return self.call.logits(perturbed(self.batch, sources, self.options.keep_token_ids, way))

    def kind(self, difference: float, gradient: float | None) -> Kind:
        """What a difference between two documents is, and the gradient that goes with it."""
        if gradient or difference > self.tolerance:
            return "leak"
        return "unproven" if gradient is None else "noise"

    def _pair(
        self, pair: tuple[Document, Document], difference: float, gradient: float | None
    ) -> Pair:
        return Pair(
            source=pair[0],
            target=pair[1],
            difference=difference,
            gradient=gradient,
            kind=self.kind(difference, gradient),
        )

    def _moves(self, groups: Iterable[Sequence[Document]]) -> Effects:
        found: Effects = {}
        # In training mode documents are not compared with themselves alone, which shows that
        # tokens were left out for want of room; so they are changed in more ways.
        ways = (0, *CROWDED) if is_training(self.call.model) else (0,)
        for group, way in product(groups, ways):
            moved = self.moved_by(group, way)
            for target in self.layout.documents:
                if target in group:
                    continue
                size = largest_difference(part(self.base, target), part(moved, target))
                _keep_largest(found, group, [target], size)
        return found

    def _slopes(self, groups: Sequence[Sequence[Document]]) -> Effects:
        found: Effects = {}
        gradients = self.call.gradients(self.batch, groups)
        for group, gradient in zip(groups, gradients, strict=True):
            for source in self.layout.documents + self.layout.padding:
                if source not in group:
                    _keep_largest(found, [source], group, float(part(gradient, source).amax()))
        return found

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
            "switch off what is random in the model (model.eval())"
        )
    return Examination(
        call=call, batch=batch, layout=layout, options=options, base=base, tolerance=tolerance
    )


def part(values: torch.Tensor, document: Document) -> torch.Tensor:
    """What belongs to one document of values `[B, T, …]`."""
    return values[document.row, document.start : document.stop]


def _keep_largest(
    found: Effects, sources: Sequence[Document], targets: Sequence[Document], size: float
) -> None:
    if size:
        for pair in ((source, target) for source in sources for target in targets):
            found[pair] = max(found.get(pair, 0.0), size)


def _require_finite(logits: torch.Tensor, layout: Layout) -> None:
    for document in layout.documents:
        if not torch.isfinite(part(logits, document)).all():
            raise ModelError(
                f"the logits of {document} are not finite, so nothing can be compared; "
                "try dtype float32 and look at the weights"
            )


def _tolerance(model: Model, logits: torch.Tensor, options: IsolationOptions) -> float:
    scale = float(logits.abs().nan_to_num(nan=0, posinf=0).amax())
    if options.tolerance is not None:
        return options.tolerance * scale
    dtypes = {torch.float32, logits.dtype}
    if isinstance(model, torch.nn.Module):
        dtypes |= {parameter.dtype for parameter in model.parameters()}
    epsilon = max(torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point)
    return 32 * epsilon * scale
