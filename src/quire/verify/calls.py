"""Calling a model the way its user does, and taking logits and gradients from the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from quire.errors import ModelError, QuireError
from quire.verify.layout import Batch, as_numpy
from quire.verify.model_state import repeatable
from quire.verify.report import Document

Model: TypeAlias = Callable[..., object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A model and where its token embeddings come out, if that is known."""

    model: Model
    embedding: torch.nn.Module | None

    def logits(self, batch: Batch) -> torch.Tensor:
        """The logits `[B, T, …]` of `model(**batch)`, on the host, without gradients."""
        with torch.no_grad():
            return self._run(batch).detach().cpu()

    def gradients(
        self, batch: Batch, groups: Iterable[Sequence[Document]]
    ) -> Iterator[torch.Tensor]:
        """Per group the gradient `[B, T]` of its documents' logits at every token's embedding, the
        largest over the embedding's width; raises ModelError where there is none."""
        with self._tapped() as taps, torch.enable_grad():
            logits = self._run(batch)
            embeddings = [tap for tap in taps if tap.shape[:2] == logits.shape[:2]]
            if not embeddings:
                raise ModelError("the embedding's output is not [rows, tokens, width]")
            for group in groups:
                found = _gradient(logits, group, embeddings)
                if not found.isfinite().all():
                    found = _gradient(logits, _not_zero(group, embeddings), embeddings)
                yield found.nan_to_num(nan=float("inf"))

    def _run(self, batch: Batch) -> torch.Tensor:
        try:
            with repeatable(self.model):
                output = self.model(**batch)
        except QuireError:
            raise
        except Exception as error:
            raise ModelError(
                f"the model failed when called with {', '.join(batch)}: "
                f"{type(error).__name__}: {_first_line(error)}"
            ) from error
        return _logits_of(output, as_numpy(batch["input_ids"]).shape)

    @contextmanager
    def _tapped(self) -> Iterator[list[torch.Tensor]]:
        """The embedding's outputs, each cut off from the weights so that gradients end there."""
        taps: list[torch.Tensor] = []

        def tap(module: object, arguments: object, output: torch.Tensor) -> torch.Tensor:
            taps.append(output.detach().requires_grad_())
            return taps[-1]

        if self.embedding is None:
            raise ModelError("no token embedding was found; pass embedding=… to check_isolation")
        handle = self.embedding.register_forward_hook(tap)
        try:
            yield taps
        finally:
            handle.remove()


def without_labels(model: Model, batch: Batch) -> dict[str, object]:
    """The batch without labels, if the model can do without: a loss says nothing about logits, and
    over a large vocabulary it takes more time and memory than the model."""
    try:
        known = inspect.signature(getattr(model, "forward", model)).parameters.get("labels")
    except (TypeError, ValueError):  # a builtin
        known = None
    spare = known is not None and known.default is None
    return {name: value for name, value in batch.items() if not (spare and name == "labels")}


def make_call(model: Model, embedding: torch.nn.Module | None = None) -> Call:
    """A call of this model; the embedding is looked for where none is given."""
    return Call(model=model, embedding=embedding or _find_embedding(model))


def with_ids(batch: Batch, input_ids: npt.NDArray[np.generic]) -> dict[str, object]:
    """The same batch with other tokens, in the library, dtype and place of its own."""
    return {**batch, "input_ids": like(batch["input_ids"], input_ids)}


def like(original: object, values: npt.NDArray[np.generic]) -> object:
    """The values as the original is: a tensor on its device, or an array, of its dtype."""
    if isinstance(original, torch.Tensor):
        return torch.as_tensor(values).to(original.device, original.dtype)
    return values.astype(np.asarray(original).dtype)


def _find_embedding(model: Model) -> torch.nn.Module | None:
    find = getattr(model, "get_input_embeddings", None)
    if callable(find):
        found = find()
        return found if isinstance(found, torch.nn.Module) else None
    if not isinstance(model, torch.nn.Module):
        return None
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    return tables[0] if len(tables) == 1 else None


def _logits_of(output: object, shape: tuple[int, ...]) -> torch.Tensor:
    if isinstance(output, Mapping):
        output = output.get("logits", output)
    output = getattr(output, "logits", output)
    if isinstance(output, tuple | list):
        output = output[0]
    if not isinstance(output, torch.Tensor):
        values = np.array(output)
        if values.dtype.kind not in "fiu":
            raise ModelError(
                f"the model returned a {type(output).__name__}; the check needs logits, or an "
                "object with logits"
            )
        output = torch.from_numpy(values)
    if output.ndim < 2 or output.shape[:2] != shape:
        raise ModelError(
            f"the model returned logits of shape {tuple(output.shape)} for input_ids of shape "
            f"{shape}; the check needs one vector for each token"
        )
    return output


def _gradient(
    logits: torch.Tensor, group: Sequence[Document], embeddings: list[torch.Tensor]
) -> torch.Tensor:
    if not group:
        return torch.zeros(logits.shape[:2])
    try:
        found = torch.autograd.grad(
            torch.stack([_random_sum(logits, document) for document in group]).sum(),
            embeddings,
            retain_graph=True,
            allow_unused=True,
        )
    except (RuntimeError, NotImplementedError) as error:
        message = f"this backend gives no gradients here: {_first_line(error)}"
        raise ModelError(message) from error
    sizes = [grad.abs().amax(dim=-1).cpu() for grad in found if grad is not None]
    total = torch.stack(sizes).amax(dim=0) if sizes else torch.zeros(logits.shape[:2])
    for document in group:
        if not total[document.row, document.start : document.stop].any():
            raise ModelError("the embedding is not connected to the logits")
    return total


def _not_zero(group: Sequence[Document], embeddings: list[torch.Tensor]) -> list[Document]:
    """The documents without those whose embeddings are all zero, as PAD's are in a new model.

    Norms multiply gradients at zero by some 1000 in every layer, until they are no numbers.
    """
    return [
        document
        for document in group
        if any(tap[document.row, document.start : document.stop].any() for tap in embeddings)
    ]


def _random_sum(logits: torch.Tensor, document: Document) -> torch.Tensor:
    """A sum with random weights, because a plain one can be constant (softmax) and hide a
    gradient."""
    mine = logits[document.row, document.start : document.stop]
    generator = torch.Generator().manual_seed(document.start)
    weights = torch.randn(mine.shape, generator=generator, dtype=torch.float32)
    return (mine * weights.to(mine)).sum()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
