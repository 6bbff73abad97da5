"""Time forward and backward passes of a model over padded and packed batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from quire.collate import DataCollatorForCausalLM
from quire.dataset import pack_dataset
from quire.errors import InvalidOption
from quire.progress import stage
from quire.speed.documents import Document
from quire.text import ByteTokenizer

Batch = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedOptions:
    """What is measured."""

    max_length: int = 1024
    """The most tokens in a row."""
    tokens_per_step: int = 4096
    """Tokens of documents in a step, about; both ways compute as many steps."""
    repeats: int = 3
    """Times that each way is measured, in turn; the fastest counts."""
    device: str | None = None
    """None: a GPU if there is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One way of making batches."""

    name: str
    steps: int
    rows: int
    tokens: int
    """Tokens of documents."""
    positions: int
    """Positions that were computed, padding included."""
    seconds: float
    peak_memory: int | None
    """Bytes on the GPU at most; None on a CPU."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens of documents, without padding."""
        return self.tokens / self.seconds

    @property
    def filled(self) -> float:
        """The share of positions that hold a token."""
        return self.tokens / self.positions

    def to_dict(self) -> dict[str, Any]:
        """The figures as plain values."""
        shares = {"tokens_per_second": self.tokens_per_second, "filled": self.filled}
        return {**asdict(self), **shares}


def measure_speed(
    model: torch.nn.Module,
    documents: Sequence[Document],
    options: SpeedOptions = SpeedOptions(),  # noqa: B008 - immutable
) -> list[Measured]:
    """Forward and backward passes over the documents, padded to the longest, and packed.

    Both ways see the same tokens in as many steps. The optimizer, which costs the same for both, is
    not measured. A GPU is synchronized around every measurement.
    """
    _require_vocabulary(model, documents)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = model.to(device).train()
    cut = [document[: options.max_length] for document in documents]
    ways = {
        "padded": _batches([{"input_ids": tokens} for tokens in cut], cut, options),
        "packed": _batches(_packed(cut, options.max_length), cut, options),
    }
    placed = {name: [_on(batch, device) for batch in batches] for name, batches in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in placed}
    peaks: dict[str, int | None] = {}
    with stage("measuring", 2 * (1 + options.repeats)) as advance:
        for batches in placed.values():  # kernels are chosen and memory is reserved
            _pass(model, batches[:1], device)
            advance(1)
        for _ in range(options.repeats):
            for name, batches in placed.items():
                elapsed, peaks[name] = _pass(model, batches, device)
                seconds[name].append(elapsed)
                advance(1)
    tokens = sum(map(len, cut))
    return [
        Measured(
            name=name,
            steps=len(batches),
            rows=sum(len(batch["input_ids"]) for batch in batches),
            tokens=tokens,
            positions=sum(batch["input_ids"].numel() for batch in batches),
            seconds=min(seconds[name]),
            peak_memory=peaks[name],
        )
        for name, batches in placed.items()
    ]


def _require_vocabulary(model: torch.nn.Module, documents: Sequence[Document]) -> None:
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    largest = max(int(document.max(initial=0)) for document in documents)
    if largest >= table.num_embeddings:
        raise InvalidOption(
            f"the documents have the token {largest}, but the model's vocabulary ends at "
            f"{table.num_embeddings - 1}; name data that was packed with the model's tokenizer"
        )


def _packed(documents: Sequence[Document], max_length: int) -> list[dict[str, Any]]:
    rows: Any = pack_dataset(
        [{"input_ids": tokens.tolist()} for tokens in documents], max_length=max_length
    )
    plain: list[dict[str, Any]] = rows.to_pylist()
    return plain


def _batches(
    rows: Sequence[dict[str, Any]], documents: Sequence[Document], options: SpeedOptions
) -> list[Batch]:
    """The rows in random order, in as many batches as there are steps."""
    total = sum(map(len, documents))
    num_steps = min(max(1, total // options.tokens_per_step), len(rows))
    order = np.random.default_rng(0).permutation(len(rows))
    collate = DataCollatorForCausalLM(ByteTokenizer())  # only for PAD, which is not trained
    return [
        collate([{"document_starts": [0], **rows[row]} for row in part])
        for part in np.array_split(order, num_steps)
    ]


def _on(batch: Batch, device: torch.device) -> Batch:
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }


def _pass(
    model: torch.nn.Module, batches: Sequence[Batch], device: torch.device
) -> tuple[float, int | None]:
    """Seconds of a pass over the batches, and the most memory that it took on a GPU."""
    is_gpu = device.type == "cuda"
    if is_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    for loss in _losses(model, batches):
        torch.autograd.backward(loss)
        model.zero_grad(set_to_none=True)
    if is_gpu:
        torch.cuda.synchronize(device)
    elapsed = time.perf_counter() - started
    return elapsed, torch.cuda.max_memory_allocated(device) if is_gpu else None


def _losses(model: torch.nn.Module, batches: Sequence[Batch]) -> Iterator[torch.Tensor]:
    for batch in batches:
        yield model(**batch).loss
