"""Call a model the way its user does, and take logits and gradients from the call."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch.nn import functional

from quire.errors import ModelError, QuireError
from quire.verify.isolation.documents import Batch, as_numpy
from quire.verify.isolation.model import Model, deterministic
from quire.verify.isolation.report import Document

NUM_SAMPLED_LOGITS = 4096


def part(values: torch.Tensor, document: Document) -> torch.Tensor:
    """What belongs to one document of values `[B, T, …]`."""
    return values[document.row, document.start : document.stop]


class ModelCall:
    """A model, and the module that embeds its tokens: as given, or found if it can be."""

    def __init__(self, model: Model, embedding: torch.nn.Module | None = None) -> None:
        self.model = model
        self.embedding = embedding or _find_embedding(model)

    def logits(self, batch: Batch) -> torch.Tensor:
        """The logits `[B, T, …]` of `model(**batch)`, on the CPU, without gradients."""
        with torch.no_grad():
            return self._run(batch).detach().cpu()

    def gradients(
        self, batch: Batch, groups: Iterable[Sequence[Document]]
    ) -> Iterator[torch.Tensor]:
        """The gradient `[B, T]` of each group's logits at every token's embedding.

        It is the largest over the embedding's width. Raises ModelError if there are no gradients.
        """
        with self._captured_embeddings() as outputs, torch.enable_grad():
            logits = self._run(batch)
            embeddings = [output for output in outputs if output.shape[:2] == logits.shape[:2]]
            if not embeddings:
                raise ModelError("the embedding's output is not [rows, tokens, width]")
            for group in groups:
                found = _gradient(logits, group, embeddings)
                if not found.isfinite().all():
                    # Where an embedding is all zeros, as PAD's is in a new model, every norm
                    # multiplies the gradient by about 1000, until it overflows.
                    not_zero = [
                        document
                        for document in group
                        if any(part(output, document).any() for output in embeddings)
                    ]
                    found = _gradient(logits, not_zero, embeddings)
                yield found.nan_to_num(nan=float("inf"))

    @contextmanager
    def sampled_vocabulary(self, batch: Batch) -> Iterator[None]:
        """Let the model's last layer compute a sample of a large vocabulary's logits.

        Logits of 1,014 tokens over 151,936 ids take 616 MB, and their gradients as much again. The
        last layer of a transformers model is linear and treats each token by itself, so it cannot
        mix documents, and any of its logits show what reaches it. Only a plain `torch.nn.Linear` is
        sampled; of other models all logits are compared.
        """
        head = _plain_head(self.model)
        if head is None:
            yield
            return
        generator = torch.Generator().manual_seed(0)
        columns = torch.randperm(head.out_features, generator=generator)
        columns = columns[:NUM_SAMPLED_LOGITS].sort().values

        def forward(hidden: torch.Tensor) -> torch.Tensor:
            chosen = columns.to(head.weight.device)
            bias = None if head.bias is None else head.bias.detach()[chosen]
            return functional.linear(hidden, head.weight.detach()[chosen], bias)

        vars(head)["forward"] = forward
        try:
            if not self._returns_sample(batch):
                del vars(head)["forward"]
            yield
        finally:
            vars(head).pop("forward", None)

    def _returns_sample(self, batch: Batch) -> bool:
        try:
            return self.logits(batch).shape[-1] == NUM_SAMPLED_LOGITS
        except ModelError:
            return False

    def _run(self, batch: Batch) -> torch.Tensor:
        try:
            with deterministic(self.model):
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
    def _captured_embeddings(self) -> Iterator[list[torch.Tensor]]:
        """The embedding's outputs, each detached from the weights so that gradients end there."""
        outputs: list[torch.Tensor] = []

        def capture(module: object, arguments: object, output: torch.Tensor) -> torch.Tensor:
            outputs.append(output.detach().requires_grad_())
            return outputs[-1]

        if self.embedding is None:
            raise ModelError("no token embedding was found; pass embedding=… to check_isolation")
        handle = self.embedding.register_forward_hook(capture)
        try:
            yield outputs
        finally:
            handle.remove()


def without_labels(model: Model, batch: Batch) -> dict[str, object]:
    """The batch without labels, if the model does not need them.

    A loss says nothing about logits, and over a large vocabulary it takes more time and memory than
    the model.
    """
    try:
        known = inspect.signature(getattr(model, "forward", model)).parameters.get("labels")
    except (TypeError, ValueError):  # a builtin
        known = None
    drop = known is not None and known.default is None
    return {name: value for name, value in batch.items() if not (drop and name == "labels")}


def _find_embedding(model: Model) -> torch.nn.Module | None:
    find = getattr(model, "get_input_embeddings", None)
    if callable(find):
        found = find()
        return found if isinstance(found, torch.nn.Module) else None
    if not isinstance(model, torch.nn.Module):
        return None
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    return tables[0] if len(tables) == 1 else None


def _plain_head(model: object) -> torch.nn.Linear | None:
    find = getattr(model, "get_output_embeddings", None)
    head = find() if callable(find) else None
    if type(head) is not torch.nn.Linear or "forward" in vars(head):
        return None
    whole = tuple(head.weight.shape) == (head.out_features, head.in_features)
    return head if whole and head.out_features > NUM_SAMPLED_LOGITS else None


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
    if not all(part(total, document).any() for document in group):
        raise ModelError("the embedding is not connected to the logits")
    return total


def _random_sum(logits: torch.Tensor, document: Document) -> torch.Tensor:
    """A sum with random weights: a plain sum can be constant (softmax) and hide a gradient."""
    own = part(logits, document)
    generator = torch.Generator().manual_seed(document.start)
    weights = torch.randn(own.shape, generator=generator, dtype=torch.float32)
    return (own * weights.to(own)).sum()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
