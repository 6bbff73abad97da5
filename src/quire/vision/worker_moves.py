"""What workers of a loader learn of the main process after they have started."""

from __future__ import annotations

from typing import NamedTuple

from quire.errors import InvalidState
from quire.vision.torch_base import is_worker
from quire.worker_memory import SharedNumbers


class Move(NamedTuple):
    """What the main process was told last."""

    number: int
    """Counts up with every move."""
    epoch: int
    skip: int
    num_packs: int
    """-1: as many as there are."""
    has_state: int
    """1 if a state was loaded, which is too large to share."""


class WorkerMoves:
    """The last move of the main process, in memory that forked and spawned workers share with it.

    Workers get a copy of the dataset when they start. Those of a `DataLoader` with
    ``persistent_workers=True`` keep that copy from pass to pass, so they ask here what changed.
    """

    def __init__(self) -> None:
        self._number = 0
        self._shared = SharedNumbers(*Move(0, 0, 0, -1, 0))

    def tell(self, *, epoch: int, skip: int, num_packs: int | None, has_state: bool) -> None:
        """Let workers know; what is called inside a worker concerns only its own copy."""
        if is_worker():
            return
        self._number += 1
        fixed = -1 if num_packs is None else num_packs
        self._shared.write(*Move(self._number, epoch, skip, fixed, int(has_state)))

    def news(self) -> Move | None:
        """The last move, in a worker that does not know it yet."""
        if not is_worker():
            return None
        move = Move(*self._shared.read())
        if move.number == self._number:
            return None
        if move.has_state:
            raise InvalidState(
                "a state was loaded after the persistent workers of a DataLoader had started, so "
                "they cannot continue from it; make a new DataLoader after load_state_dict, or "
                "set persistent_workers=False"
            )
        self._number = move.number
        return move
