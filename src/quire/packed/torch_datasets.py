"""Packed rows and batches as torch datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from quire.worker_memory import SharedNumbers

if TYPE_CHECKING:
    from quire.packed.dataset import PackedDataset, Row
    from quire.packed.loader import PackedLoader

Tensors = dict[str, torch.Tensor]


class TorchRows(Dataset[Tensors]):
    """Map-style dataset: rows as tensors, copied from the mapped memory so they can be modified."""

    def __init__(self, rows: PackedDataset) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Tensors:
        return row_tensors(self._rows[row])

    def __getitems__(self, rows: Sequence[int]) -> list[Tensors]:
        """Several rows at once."""
        return [row_tensors(row) for row in self._rows.__getitems__(rows)]


def row_tensors(row: Row) -> Tensors:
    """A row as tensors of its own; images stay a list of dicts."""
    return {
        name: torch.tensor(values) if isinstance(values, np.ndarray) else values
        for name, values in row.items()
    }


class TorchBatches(IterableDataset[Any]):
    """The loader's batches as tensors; each of n workers makes every n-th step, in turn.

    Every pass starts at the loader's epoch and step, also in persistent workers: set them between
    passes with `PackedLoader.load_state_dict`. Iterating does not move the loader, because batches
    are made before they are delivered; the consumer counts them and uses
    `PackedLoader.state_after`.
    """

    def __init__(self, loader: PackedLoader, position: SharedNumbers) -> None:
        self._loader, self._position = loader, position
        self._started_in: int | None = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        loader, worker = self._loader, get_worker_info()
        loader.require_whole_share()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        # A worker starts with a copy of the loader's position; later changes are shared.
        is_first = worker is None or self._started_in != os.getpid()
        epoch, step = (loader.epoch, loader.step) if is_first else self._position.read()
        self._started_in = os.getpid()
        return self._batches(epoch, range(step + first, loader.steps_per_epoch, every))

    def _batches(self, epoch: int, steps: range) -> Iterator[Any]:
        for step in steps:
            batch = self._loader.batch(epoch, step)
            yield [row_tensors(row) for row in batch] if self._loader.collate is None else batch
