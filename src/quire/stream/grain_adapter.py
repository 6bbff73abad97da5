"""A stream as a grain `IterDataset`, for JAX."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, missing_dependency
from quire.stream.dealing import DealtBatches, Saved
from quire.stream.options import StreamConfig
from quire.stream.places import WHOLE, Part
from quire.stream.recipe import StreamRecipe
from quire.stream.state import State
from quire.text import TokenizerLike

try:
    import grain
except ModuleNotFoundError:
    raise missing_dependency("grain", "GrainBatches", "jax") from None

Arrays: TypeAlias = dict[str, npt.NDArray[np.generic]]


class GrainBatches(grain.IterDataset[Arrays]):  # type: ignore[misc]
    """Batches as dicts of arrays ``[A, B, T]``, in grain's terms.

    Arguments are those of `open_stream`; ``state`` is where every iteration begins instead of at
    the start: what `latest_state` found in an iterator's state, or a `Stream`'s own. ``map``,
    ``batch``, thread prefetch and ``mp_prefetch`` work on it, and an iterator's `get_state` is
    exact behind any of them. With ``mp_prefetch`` every worker reads all and gives each N-th
    batch, so the order stays that of the stream.
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
    ) -> None:
        super().__init__()
        given = {"rank": rank, "world_size": world_size, "source": source, "tokenizer": tokenizer}
        self._recipe = StreamRecipe.of(config, **given)
        self._start = state
        self._part = WHOLE

    @property
    def config(self) -> StreamConfig:
        """The options with the vocabulary's size and special ids filled in."""
        return self._recipe.config

    def __iter__(self) -> GrainIterator:
        return GrainIterator(DealtBatches(self._recipe.open, part=self._part, start=self._start))

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Give every N-th batch; grain says so to the copy of each of its N workers."""
        if sequential_slice or sl.stop is not None:
            raise InvalidOption(
                f"a stream cannot give the stretch {sl} of itself, as it has no known end; leave "
                "sequential_slice false, so that workers take turns"
            )
        part = Part(index=sl.start or 0, count=sl.step or 1)
        if self._part not in (WHOLE, part):
            raise InvalidOption(
                f"the stream is dealt to {self._part.count} workers already, and each of them to "
                f"{part.count} more; prefetch once"
            )
        self._part = part

    def __str__(self) -> str:
        return "GrainBatches"


class GrainIterator(grain.DatasetIterator[Arrays]):  # type: ignore[misc]
    """The iterator of `GrainBatches`."""

    def __init__(self, dealt: DealtBatches) -> None:
        super().__init__()
        self._dealt = dealt

    def __next__(self) -> Arrays:
        self._assert_not_closed()
        batch, _ = next(self._dealt)
        return batch.to_dict()

    def get_state(self) -> State:
        """The state behind the last batch, in JSON."""
        return self._dealt.get_state()

    def set_state(self, state: Saved) -> None:
        """Go on behind the batch of a state."""
        self._dealt.set_state(state)

    def close(self) -> None:
        """End the threads and processes of the stream."""
        super().close()
        self._dealt.close()

    def __str__(self) -> str:
        return "GrainIterator"
