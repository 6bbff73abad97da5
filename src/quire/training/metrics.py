"""Loss and token accuracy per source or per document of packed batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from quire.boundaries.checks import read_starts
from quire.errors import InvalidOption, InvalidRow
from quire.labels import fragment_numbers
from quire.training.loss import ModelBatch, PackedLoss, batch_segments

SOURCE_IDS = "source_ids"
"""The key of the source of every token ``[B, T]``; removed before the model is called."""
SourceOf = Callable[[npt.NDArray[np.int64]], npt.ArrayLike]


@dataclass(frozen=True, kw_only=True)
class SourceCollator:
    """A collator whose batches say which source every token is from, as ``source_ids``.

    ``source_of`` maps the document ids of a row to numbers of sources. They are the column
    ``document_ids``, which `quire pack` writes, and `PackedDataset` reads if ``columns`` names it.
    Only collators that stack rows are supported: position t of a row is position t of its batch
    row, as in `DataCollatorForCausalLM`.
    """

    collate: Callable[[list[Any]], Any]
    source_of: SourceOf
    column: str = "document_ids"

    def __call__(self, rows: list[Any]) -> Any:  # noqa: ANN401 - what the collator gives
        """The collator's batch with one more key."""
        batch = self.collate(rows)
        shape = tuple(batch["input_ids"].shape)
        if shape[0] != len(rows):
            raise InvalidOption(
                f"the collator made {shape[0]} rows of {len(rows)}, so sources of tokens are not "
                "known; use a collator that stacks rows, such as DataCollatorForCausalLM"
            )
        sources = np.full(shape, -1, np.int64)
        for number, row in enumerate(rows):
            of_row = self._of_row(row)
            sources[number, : len(of_row)] = of_row
        return {**batch, SOURCE_IDS: torch.from_numpy(sources)}

    def _of_row(self, row: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        if self.column not in row or "document_starts" not in row:
            raise InvalidRow(
                f"a row has {', '.join(sorted(row))} but no {self.column} with document_starts; "
                "pack with keep_sources, name both in PackedDataset(columns=...), and let the "
                "trainer keep all columns"
            )
        tokens = len(row["input_ids"])
        starts, _ = read_starts([row["document_starts"]], np.array([tokens]))
        numbers = np.asarray(self.source_of(np.asarray(row[self.column], np.int64)), np.int64)
        if len(numbers) != len(starts):
            raise InvalidRow(
                f"source_of gave {len(numbers)} numbers for {len(starts)} documents; give one each"
            )
        return numbers.repeat(np.diff(starts, append=tokens))


@dataclass(kw_only=True)
class SourceMetrics:
    """Sums of losses, correct predictions and targets per source, over microbatches and ranks.

    Metrics are per token, however the loss is averaged.
    """

    names: Sequence[str]
    """The names of sources 0, 1, 2, …."""
    _sums: torch.Tensor | None = field(default=None, init=False)

    def add(self, losses: torch.Tensor, correct: torch.Tensor, sources: torch.Tensor) -> None:
        """Count targets: flat losses, whether each was predicted, and its source; -1 is none."""
        kept = sources >= 0
        if bool((sources >= len(self.names)).any()):
            raise InvalidOption(
                f"a token has source {int(sources.max())} but there are names for "
                f"{len(self.names)}; name all sources"
            )
        values = torch.stack([losses, correct.to(losses), torch.ones_like(losses)])
        sums = torch.zeros(3, len(self.names), dtype=torch.float64, device=losses.device)
        sums.index_add_(1, sources[kept], values[:, kept].double())
        self._sums = sums if self._sums is None else self._sums + sums

    def take(self) -> dict[str, float]:
        """``loss/NAME`` and ``token_acc/NAME`` since the last call; all ranks have to call it."""
        sums, self._sums = self._sums, None
        if sums is None:
            sums = torch.zeros(3, len(self.names), dtype=torch.float64)
        if dist.is_available() and dist.is_initialized():
            sums = sums.to("cuda" if dist.get_backend() == "nccl" else "cpu")
            dist.all_reduce(sums)
        found: dict[str, float] = {}
        for name, (loss, correct, targets) in zip(self.names, sums.T.tolist(), strict=True):
            if targets:
                found |= {f"loss/{name}": loss / targets, f"token_acc/{name}": correct / targets}
        return found


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DocumentMetrics:
    """Of every document of a batch, in the order of rows; documents without targets have NaN.

    Padding that the batch does not tell apart from documents is one without targets.
    """

    loss: npt.NDArray[np.float64]
    token_acc: npt.NDArray[np.float64]
    num_targets: npt.NDArray[np.int64]


def document_metrics(
    logits: torch.Tensor, batch: ModelBatch, loss: PackedLoss | None = None
) -> DocumentMetrics:
    """Mean loss and token accuracy of every document.

    >>> batch = {
    ...     "labels": torch.tensor([[-100, 1, 1, -100, 1]]),
    ...     "position_ids": torch.tensor([[0, 1, 2, 0, 1]]),
    ... }
    >>> document_metrics(torch.eye(5)[None], batch).num_targets
    array([2, 1])
    """
    flat = (loss or PackedLoss()).of_tokens(logits, batch)
    segments = batch_segments(batch)
    losses, correct, targets = (_at_tokens(values, segments, batch) for values in flat)
    fragments = fragment_numbers(segments)
    documents = np.unique(fragments[segments != 0])
    sums = [
        np.bincount(fragments.ravel(), (values * targets).ravel(), documents.max() + 1)[documents]
        for values in (losses, correct, targets)
    ]
    with np.errstate(invalid="ignore"):
        return DocumentMetrics(
            loss=sums[0] / sums[2],
            token_acc=sums[1] / sums[2],
            num_targets=sums[2].astype(np.int64),
        )


def _at_tokens(
    flat: torch.Tensor, segments: npt.NDArray[np.int64], batch: ModelBatch
) -> npt.NDArray[np.float64]:
    """Values of predictions at the tokens that were predicted, which belong to their document."""
    values = flat.detach().double().cpu().numpy().reshape(segments.shape)
    if "shift_labels" in batch:
        return values
    return np.concatenate([np.zeros_like(values[:, :1]), values[:, :-1]], axis=1)
