"""Packed rows and batches for torch's own loaders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from quire.worker_memory import SharedNumbers

if TYPE_CHECKING:
    from quire.packed.dataset import PackedDataset, Row
    from quire.packed.loader import PackedLoader

Tensors = dict[str, torch.Tensor]


class TorchRows(Dataset[Tensors]):
    """Map-style: rows as tensors, copied out of the mapped memory, so that they may be changed."""

    def __init__(self, rows: PackedDataset) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> Tensors:
        return _tensors(self._rows[row])

    def __getitems__(self, rows: Sequence[int]) -> list[Tensors]:
        """Several rows at once."""
        return [_tensors(row) for row in self._rows.__getitems__(rows)]


def _tensors(row: Row) -> Tensors:
    return {name: torch.tensor(values) for name, values in row.items()}


class TorchBatches(IterableDataset[Any]):
    """The loader's batches, as tensors; of n workers each makes every n-th step, in turn.

    Every pass starts at the loader's epoch and step, also in persistent workers: set them between
    passes, with `PackedLoader.load_state_dict`. Iterating does not move the loader: batches are
    made ahead of their delivery, so the consumer says how far it came, with
    `PackedLoader.state_after`.
    """

    def __init__(self, loader: PackedLoader, place: SharedNumbers) -> None:
        self._loader, self._place = loader, place
        self._started_in: int | None = None

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        loader, worker = self._loader, get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        # A worker starts with a copy of the loader's place; where that moved later is shared.
        is_first = worker is None or self._started_in != os.getpid()
        epoch, step = (loader.epoch, loader.step) if is_first else self._place.read()
        self._started_in = os.getpid()
        return self._batches(epoch, range(step + first, loader.steps_per_epoch, every))

    def _batches(self, epoch: int, steps: range) -> Iterator[Any]:
        for step in steps:
            batch = self._loader.batch(epoch, step)
            yield [_tensors(row) for row in batch] if self._loader.collate is None else batch
