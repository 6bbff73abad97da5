"""Packed rows and batches for torch's own loaders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

if TYPE_CHECKING:
    from quire.dataset.packed.dataset import PackedDataset, Row
    from quire.dataset.packed.loader import PackedLoader

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

    Iterating does not move the loader: batches are made ahead of their delivery, so whoever gets
    them says how far they came, with `PackedLoader.state_after`.
    """

    def __init__(self, loader: PackedLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        loader, worker = self._loader, get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for step in range(loader.step + first, loader.steps_per_epoch, every):
            batch = loader.batch(loader.epoch, step)
            yield [_tensors(row) for row in batch] if loader.collate is None else batch
