"""A stream for PyTorch: what ``model(**batch)`` of transformers needs, a microbatch at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from quire.collate.attention import no_cache
from quire.errors import InvalidState, missing_dependency
from quire.masks.visibility import fragment_starts
from quire.stream.batch import Batch
from quire.stream.open import ConfigLike, LoaderDataset
from quire.stream.state import State
from quire.stream.stream import Saved
from quire.stream.workers import ONLY, Worker, WorkerBatches
from quire.training.sharding import require_whole_share
from quire.worker_memory import OneUse, SharedNumbers

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
    from torch.utils.data._utils import worker as worker_module
except ModuleNotFoundError:
    raise missing_dependency("torch", "TorchBatches", "torch") from None

ModelInputs: TypeAlias = dict[str, "torch.Tensor | bool | tuple[()]"]


class TorchBatches(LoaderDataset, IterableDataset[ModelInputs]):
    """Microbatches ``[batch_size, max_length]``; ``grad_accum`` consecutive ones are one step.

    Give it to a `torchdata.stateful_dataloader.StatefulDataLoader` with ``batch_size=None`` and any
    ``num_workers``: the microbatches are the same, in the same order, and the loader's state is
    exact. A `torch.utils.data.DataLoader` works as well. Arguments are those of `open_stream`;
    ``state`` is where every pass starts: what `latest_state` found in a loader's state, or a
    `Stream`'s own.

    Each microbatch holds int64 ``input_ids``, ``labels`` (unshifted, as transformers shifts them),
    ``position_ids`` (which restart with every fragment) and ``use_cache=False``. The shift of
    transformers leaves no label for the last position of a row, so ``shift_labels`` holds all
    targets at the positions that predict them, which its loss then uses as they are; without them
    (``shift_labels=False``) a row trains one target less.
    """

    def __init__(
        self,
        config: ConfigLike | None = None,
        *,
        shift_labels: bool = True,
        **arguments: Any,  # noqa: ANN401 - those of open_stream, checked there
    ) -> None:
        super().__init__(config, **arguments)
        self._shift_labels = shift_labels
        self._next_start: Saved | None = None
        self._batches: WorkerBatches | None = None
        self._one_use = OneUse()
        self._num_loads = SharedNumbers(0)
        self._seen_loads, self._started_in = 0, -1

    def __iter__(self) -> Iterator[ModelInputs]:
        if self._missed_a_state():
            return _StateMissed()
        require_whole_share(self.rank, self.world_size, "a stream")
        if self._next_start is not None and self._one_use.is_over():
            self._next_start = None
        self._batches, self._next_start = self._open(), None
        return _Microbatches(self._batches, self._shift_labels)

    def state_dict(self) -> State:
        """The state after the last microbatch of the latest pass."""
        return (self._batches or self._open()).state_dict()

    def load_state_dict(self, state: Saved) -> None:
        """Continue the next pass from a state; later passes start where they always do.

        Workers of a `DataLoader` receive the state when they start, and it applies to their next
        pass, however far that goes. Persistent workers are already running, so their next pass is
        an error; a `StatefulDataLoader` starts new workers itself.
        """
        if not isinstance(state, Mapping | list | tuple):
            raise InvalidState(
                f"a stream's state is a dict, not a {type(state).__name__}; to start over, make a "
                "new dataset"
            )
        self._next_start, self._batches = state, None
        self._one_use.renew()
        if get_worker_info() is None:
            self._seen_loads += 1
            self._num_loads.write(self._seen_loads)

    def require_state(self, state: Saved) -> None:
        """Raise now, not at the first microbatch, unless a pass can start from the state."""
        batches = self._open()
        try:
            batches.load_state_dict(state)
        finally:
            batches.close()

    def _missed_a_state(self) -> bool:
        """Whether this is a persistent worker whose copy of the dataset has an older state."""
        is_persistent = get_worker_info() is not None and self._started_in == os.getpid()
        self._started_in = os.getpid()
        return is_persistent and (self._seen_loads,) != self._num_loads.read()

    def _open(self) -> WorkerBatches:
        info, worker = get_worker_info(), ONLY
        if info is not None:
            worker = Worker(index=info.id, count=info.num_workers)
        with _hidden_worker():
            return WorkerBatches(
                # A thread would see the worker, which is hidden only from this one.
                partial(self._open_stream, prefetch=info is None),
                worker=worker,
                pieces=self._arguments.options.grad_accum,
                start=self._start if self._next_start is None else self._next_start,
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}  # a worker opens its own


class _StateMissed:
    """Raises at the first batch: an error in ``iter`` would kill the worker without a message."""

    def __iter__(self) -> _StateMissed:
        return self

    def __next__(self) -> ModelInputs:
        raise InvalidState(
            "a state was loaded after this worker had started, so it cannot continue from it; use "
            "persistent_workers=False, or a StatefulDataLoader and its own state"
        )


class _Microbatches:
    """Not a generator: one that raised has ended, and would end a pass early without an error."""

    def __init__(self, batches: WorkerBatches, shift_labels: bool) -> None:
        self._batches, self._shift_labels = batches, shift_labels

    def __iter__(self) -> _Microbatches:
        return self

    def __next__(self) -> ModelInputs:
        with _hidden_worker():
            batch, piece = next(self._batches)
        return model_inputs(batch, piece, shift_labels=self._shift_labels)


@contextmanager
def _hidden_worker() -> Iterator[None]:
    """Code in this block does not see that the process is a loader's worker.

    `datasets` would give each worker some of its shards; here every worker reads them all.
    """
    info, worker_module._worker_info = worker_module._worker_info, None
    try:
        yield
    finally:
        worker_module._worker_info = info


def model_inputs(batch: Batch, microbatch: int = 0, *, shift_labels: bool = True) -> ModelInputs:
    """The keywords of ``model(**batch)`` for one microbatch of a batch."""
    segments = batch.segment_ids[microbatch]
    targets = batch.labels[microbatch].astype(np.int64)
    labels = np.full_like(targets, -100)
    labels[:, 1:] = targets[:, :-1]
    arrays = {
        "input_ids": batch.input_ids[microbatch].astype(np.int64),
        "labels": labels,
        "position_ids": np.arange(segments.shape[1]) - fragment_starts(segments),
    }
    if shift_labels:
        arrays["shift_labels"] = targets
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {**tensors, "use_cache": no_cache()}
