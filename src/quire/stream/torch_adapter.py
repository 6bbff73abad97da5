"""A stream for PyTorch: what ``model(**batch)`` of transformers needs, a microbatch at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from quire.collate.attention import no_cache
from quire.errors import InvalidState, missing_dependency
from quire.masks.visibility import fragment_starts
from quire.stream.batch import Batch
from quire.stream.dealing import DealtBatches, Saved
from quire.stream.options import StreamConfig
from quire.stream.places import WHOLE, Part
from quire.stream.recipe import StreamRecipe
from quire.stream.state import State
from quire.text import TokenizerLike
from quire.worker_memory import OneUse, SharedNumbers

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
    from torch.utils.data._utils import worker as worker_module
except ModuleNotFoundError:
    raise missing_dependency("torch", "TorchBatches", "torch") from None

ModelInputs: TypeAlias = dict[str, "torch.Tensor | bool | tuple[()]"]


class TorchBatches(IterableDataset[ModelInputs]):
    """Microbatches ``[batch_size, seq_len]``; ``grad_accum`` of them in a row are one step.

    Give it to a `torchdata.stateful_dataloader.StatefulDataLoader` with ``batch_size=None`` and any
    ``num_workers``: the microbatches are the same, in the same order, and the loader's state is
    exact. A `torch.utils.data.DataLoader` works as well. Arguments are those of `open_stream`;
    ``state`` is where every pass begins instead of at the start: what `latest_state` found in a
    loader's state, or a `Stream`'s own.

    Each microbatch holds int64 ``input_ids``, ``labels`` (unshifted, as transformers shifts them),
    ``position_ids`` (they restart with every fragment) and ``use_cache=False``. Transformers' shift
    leaves no label for the last place of a row, so ``shift_labels`` carries all ``seq_len`` targets
    to the place that predicts them, which its loss then takes as they are; without them
    (``shift_labels=False``) a row trains ``seq_len - 1`` targets.
    """

    def __init__(
        self,
        config: StreamConfig | Mapping[str, Any] | str | os.PathLike[str],
        *,
        rank: int = 0,
        world_size: int = 1,
        source: object | None = None,
        tokenizer: TokenizerLike | None = None,
        state: Saved | None = None,
        shift_labels: bool = True,
    ) -> None:
        given = {"rank": rank, "world_size": world_size, "source": source, "tokenizer": tokenizer}
        self._recipe = StreamRecipe.of(config, **given)
        self._pieces = self._recipe.options.train.grad_accum
        self._start, self._shift_labels = state, shift_labels
        self._next_start: Saved | None = None
        self._dealt: DealtBatches | None = None
        self._one_use = OneUse()
        self._num_loads = SharedNumbers(0)
        self._seen_loads, self._started_in = 0, -1

    @property
    def config(self) -> StreamConfig:
        """The options with the vocabulary's size and special ids filled in."""
        return self._recipe.config

    def __iter__(self) -> Iterator[ModelInputs]:
        if self._missed_a_state():
            return _StateMissed()
        if self._next_start is not None and self._one_use.is_over():
            self._next_start = None
        self._dealt, self._next_start = self._opened(), None
        return _Microbatches(self._dealt, self._shift_labels)

    def state_dict(self) -> State:
        """The state behind the last microbatch of the pass that was begun last."""
        return (self._dealt or self._opened()).get_state()

    def load_state_dict(self, state: Saved) -> None:
        """Continue the next pass from a state; later passes start where they always do.

        Workers of a `DataLoader` take it with them when they start, and the next pass is theirs,
        however far it goes. Persistent ones are running already, so their next pass is an error; a
        `StatefulDataLoader` starts new ones itself.
        """
        if not isinstance(state, Mapping | list | tuple):
            raise InvalidState(
                f"a stream's state is a dict, not a {type(state).__name__}; to begin anew, make a "
                "new dataset"
            )
        self._next_start, self._dealt = state, None
        self._one_use.renew()
        if get_worker_info() is None:
            self._seen_loads += 1
            self._num_loads.write(self._seen_loads)

    def _missed_a_state(self) -> bool:
        """Whether this is a persistent worker and its copy of the dataset has an older state."""
        is_persistent = get_worker_info() is not None and self._started_in == os.getpid()
        self._started_in = os.getpid()
        return is_persistent and (self._seen_loads,) != self._num_loads.read()

    def _opened(self) -> DealtBatches:
        worker = get_worker_info()
        part = WHOLE if worker is None else Part(index=worker.id, count=worker.num_workers)
        start = self._start if self._next_start is None else self._next_start
        recipe = self._recipe if worker is None else self._recipe.without_thread()
        with _unseen_worker():
            return DealtBatches(recipe.open, part=part, pieces=self._pieces, start=start)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_dealt": None}  # a worker opens its own


class _StateMissed:
    """Raises at the first batch: an error in ``iter`` would kill the worker, without its text."""

    def __iter__(self) -> _StateMissed:
        return self

    def __next__(self) -> ModelInputs:
        raise InvalidState(
            "a state was loaded after this worker had started, so it cannot continue from it; use "
            "persistent_workers=False, or a StatefulDataLoader and its own state"
        )


class _Microbatches:
    """No generator: one that raised is over, and would end a pass early without a word."""

    def __init__(self, dealt: DealtBatches, shift_labels: bool) -> None:
        self._dealt, self._shift_labels = dealt, shift_labels

    def __iter__(self) -> _Microbatches:
        return self

    def __next__(self) -> ModelInputs:
        with _unseen_worker():
            batch, piece = next(self._dealt)
        return model_inputs(batch, piece, shift_labels=self._shift_labels)


@contextmanager
def _unseen_worker() -> Iterator[None]:
    """Whoever reads in this block does not see that the process is a loader's worker.

    `datasets` looks, and gives each worker some of its shards; here every worker reads them all.
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
