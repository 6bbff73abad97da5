"""`PackedLoss`: the loss of a packed batch in torch, as if its documents were never packed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, missing_dependency, unknown_name
from quire.labels import AVERAGINGS, shift_left
from quire.loss import DocumentWeights, LossTotals, packed_weights

try:
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
except ModuleNotFoundError:
    raise missing_dependency("torch", "PackedLoss", "torch") from None

ModelBatch: TypeAlias = Mapping[str, Any]
"""What ``model(**batch)`` is called with; of one microbatch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedLoss:
    """The loss of an optimizer step, equal for packed and unpacked documents.

    ``averaging`` is ``token`` (the mean over all targets of the step), ``document`` (the mean over
    documents of their means) or ``sqrt``. The step is all microbatches of all ranks: first ask for
    its `denominator`, then for the loss of each microbatch. Gradients of these losses, added over
    microbatches and averaged over ranks (as DistributedDataParallel does), are those of the step.

    >>> loss = PackedLoss(averaging="document")
    >>> batch = {
    ...     "labels": torch.tensor([[-100, 1, 1, -100, 1]]),
    ...     "position_ids": torch.tensor([[0, 1, 2, 0, 1]]),
    ... }
    >>> total = loss.denominator([batch])
    >>> total, round(loss(torch.zeros(1, 5, 4), batch, total).item(), 4)  # ln 4
    (2.0, 1.3863)
    """

    averaging: str = "token"
    ignore_index: int = -100

    def __post_init__(self) -> None:
        if self.averaging not in AVERAGINGS:
            raise unknown_name("averaging", self.averaging, AVERAGINGS)

    def totals(
        self, batch: ModelBatch, document_weights: DocumentWeights | None = None
    ) -> LossTotals:
        """Targets, documents and weight of one microbatch."""
        return self.weights(batch, document_weights)[1]

    def denominator(
        self,
        batches: Iterable[ModelBatch],
        document_weights: Iterable[DocumentWeights] | None = None,
    ) -> float:
        """The sum of weights over these microbatches and, if torch.distributed runs, all ranks.

        All ranks have to call it, once per step. ``document_weights`` has those of each microbatch.
        """
        batches = list(batches)
        given = [None] * len(batches) if document_weights is None else list(document_weights)
        parts = [self.totals(*pair) for pair in zip(batches, given, strict=True)]
        return summed_over_ranks(LossTotals.sum(parts).weight)

    def __call__(
        self,
        logits: torch.Tensor,
        batch: ModelBatch,
        denominator: float,
        document_weights: DocumentWeights | None = None,
    ) -> torch.Tensor:
        """The microbatch's part of the loss, multiplied by the ranks that will be averaged."""
        weights = self.weights(batch, document_weights)[0].to(logits.device)
        losses = self.of_tokens(logits, batch)[0]
        return (weights.to(losses.dtype) * losses).sum() * (_world_size() / (denominator or 1.0))

    def of_tokens(
        self, logits: torch.Tensor, batch: ModelBatch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Losses, whether the prediction is right, and whether there is a target; all flat.

        They are at the positions that predict.
        """
        targets = _targets(batch, self.ignore_index).to(logits.device).flatten()
        flat = logits.flatten(0, -2)
        flat = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat
        losses = cross_entropy(flat, targets, ignore_index=self.ignore_index, reduction="none")
        return losses, flat.argmax(-1) == targets, targets != self.ignore_index

    def weights(
        self, batch: ModelBatch, document_weights: DocumentWeights | None = None
    ) -> tuple[torch.Tensor, LossTotals]:
        """The weight of every prediction, flat, and the microbatch's totals."""
        weights, totals = packed_weights(
            _labels(batch),
            batch_segments(batch),
            averaging=self.averaging,
            document_weights=document_weights,
            ignore_index=self.ignore_index,
        )
        shifted = weights if "shift_labels" in batch else shift_left(weights, 0.0)
        return torch.from_numpy(np.ascontiguousarray(shifted).ravel()), totals


def batch_segments(batch: ModelBatch) -> npt.NDArray[np.int64]:
    """The number of the document at every position ``[B, T]``, as far as the batch says.

    From ``segment_ids``, ``seq_idx`` or positions that restart; otherwise a row is one document.
    """
    if batch.get("segment_ids") is not None:
        return _array(batch["segment_ids"])
    if batch.get("seq_idx") is not None:
        return _array(batch["seq_idx"]) + 1
    shape = _labels(batch).shape
    positions = batch.get("text_position_ids", batch.get("position_ids"))
    if positions is None:
        return np.ones(shape, np.int64)
    numbers = _array(positions)
    if numbers.ndim == 3:  # mRoPE's four rows: the first one counts tokens
        numbers = numbers[0]
    opens = np.ones(numbers.shape, np.int64)
    opens[:, 1:] = np.diff(numbers, axis=1) != 1
    return np.broadcast_to(np.cumsum(opens, axis=1), shape)


def _labels(batch: ModelBatch) -> npt.NDArray[np.int64]:
    if "shift_labels" in batch:
        return _array(batch["shift_labels"])
    if batch.get("labels") is None:
        raise InvalidOption(
            f"the batch has {', '.join(sorted(batch)) or 'no keys'} but no labels, so it has no "
            "loss; use a collator that makes labels, such as quire.collate.DataCollatorForCausalLM"
        )
    labels = _array(batch["labels"]).copy()
    labels[..., :1] = -100  # nothing precedes the first token of a row, so it is never predicted
    return labels


def _targets(batch: ModelBatch, ignore_index: int) -> torch.Tensor:
    if "shift_labels" in batch:
        return torch.as_tensor(batch["shift_labels"])
    return torch.from_numpy(shift_left(_labels(batch), np.int64(ignore_index)))


def _array(values: Any) -> npt.NDArray[np.int64]:  # noqa: ANN401 - a tensor or an array
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    return np.asarray(values, np.int64)


def summed_over_ranks(number: float) -> float:
    """The sum of what all ranks pass; all of them have to call it."""
    if _world_size() == 1:
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    total = torch.tensor(number, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return float(total)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
