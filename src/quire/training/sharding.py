"""Detects that something divides among ranks what is already one rank's share, or nothing does.

accelerate and transformers divide every loader that they prepare. A share of a share loses rows; a
loader that was opened without a rank gives every rank the same rows.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import FrameType

from quire.errors import InvalidOption

_DIVIDERS = ("IterableDatasetShard", "BatchSamplerShard", "DataLoaderDispatcher")
"""accelerate's classes that give every process only a part of what they iterate over."""
_MAX_FRAMES = 12
_warned = False


def require_whole_share(rank: int, world_size: int, what: str) -> None:
    """Raise if the caller divides a rank's share again; warn once if no one divides the data."""
    divider = _divider()
    if world_size > 1 and divider is not None:
        raise InvalidOption(
            f"{what} is opened for rank {rank} of {world_size}, but accelerate's {divider} would "
            "divide it among the ranks again and lose rows; do not pass it to accelerator.prepare, "
            "use quire.training.TrainingData, or quire.training.attach(trainer, ...) with a Trainer"
        )
    processes = _num_processes()
    if world_size == 1 and processes > 1 and divider is None:
        _warn_of_copies(what, processes)


def _warn_of_copies(what: str, processes: int) -> None:
    global _warned  # noqa: PLW0603 - once per process
    if not _warned:
        _warned = True
        warnings.warn(
            f"{what} is opened for all ranks, but {processes} processes train: each of them reads "
            f"the same rows; open it with rank= and world_size={processes}",
            stacklevel=4,
        )


def _divider() -> str | None:
    """The class of accelerate on whose behalf the current iteration was started."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return None
        owner = frame.f_locals.get("self")
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            name = type(owner).__name__
            if name in _DIVIDERS:
                return name
        frame = frame.f_back
    return None


def _num_processes() -> int:
    """The processes of this run, as launchers announce them."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    size = os.environ.get("WORLD_SIZE", "1")
    return int(size) if size.isdigit() else 1
