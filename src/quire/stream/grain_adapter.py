"""A stream as a grain `IterDataset`, for JAX."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, missing_dependency
from quire.stream.open import LoaderDataset
from quire.stream.state import State
from quire.stream.stream import Saved
from quire.stream.workers import ONLY, Worker, WorkerBatches

try:
    import grain
except ModuleNotFoundError:
    raise missing_dependency("grain", "GrainBatches", "jax") from None

Arrays: TypeAlias = dict[str, npt.NDArray[np.generic]]


class GrainBatches(LoaderDataset, grain.IterDataset[Arrays]):  # type: ignore[misc]
    """Batches as dicts of arrays ``[A, B, T]``, as a grain dataset.

    Arguments are those of `open_stream`; ``state`` is where every iteration starts: what
    `latest_state` found in an iterator's state, or a `Stream`'s own. ``map``, ``batch``, thread
    prefetch and ``mp_prefetch`` work on it, and the iterator's `get_state` is exact after any of
    them. With ``mp_prefetch`` every worker reads everything and delivers every N-th batch, so the
    order stays that of the stream.
    """

    _worker = ONLY

    def __iter__(self) -> GrainIterator:
        batches = WorkerBatches(self._open_stream, worker=self._worker, start=self._start)
        return GrainIterator(batches)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Deliver every N-th batch; grain calls this on the copy of each of its N workers."""
        if sequential_slice or sl.stop is not None:
            raise InvalidOption(
                f"a stream cannot deliver the slice {sl}, as it has no known end; leave "
                "sequential_slice false, so that workers take turns"
            )
        worker = Worker(index=sl.start or 0, count=sl.step or 1)
        if self._worker not in (ONLY, worker):
            raise InvalidOption(
                f"the stream is already shared by {self._worker.count} workers, and each of them "
                f"would share it with {worker.count} more; prefetch only once"
            )
        self._worker = worker

    def __str__(self) -> str:
        return "GrainBatches"


class GrainIterator(grain.DatasetIterator[Arrays]):  # type: ignore[misc]
    """The iterator of `GrainBatches`."""

    def __init__(self, batches: WorkerBatches) -> None:
        super().__init__()
        self._batches = batches

    def __next__(self) -> Arrays:
        self._assert_not_closed()
        batch, _ = next(self._batches)
        return batch.to_dict()

    def get_state(self) -> State:
        """The state after the last batch, in JSON."""
        return self._batches.state_dict()

    def set_state(self, state: Saved) -> None:
        """Continue after the batch of a state."""
        self._batches.load_state_dict(state)

    def close(self) -> None:
        """End the threads and processes of the stream."""
        super().close()
        self._batches.close()

    def __str__(self) -> str:
        return "GrainIterator"
