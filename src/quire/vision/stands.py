"""Where streamed packs stand: what was read, what of it waits, and the books."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from quire.vision.carry_over import CarryOver, Group
from quire.vision.delivery import Delivery

Held: TypeAlias = tuple[Any, tuple[int, ...]]
"""A sample and its sizes."""


class Ready(NamedTuple):
    """A pack that leaves next, or soon."""

    group: Group
    members: list[Held]


class Stand(NamedTuple):
    """Replaced as a whole with every sample and every pack; what it tells of does not change.

    So whatever fails or is interrupted, it stands behind the last sample that was done with.
    """

    delivery: Delivery
    carry: CarryOver
    held: Mapping[int, Held]
    """The samples of ``carry``, by position."""
    appended: list[tuple[int, Held]]
    """What is read into the buffer since; those behind the first ``num_new`` do not count."""
    num_new: int = 0
    num_read: int = 0
    finished: bool = False
    ready: tuple[Ready, ...] = ()

    @property
    def new(self) -> list[tuple[int, Held]]:
        """The samples that are in the buffer, and were in none before."""
        return self.appended[: self.num_new]

    def with_sample(self, position: int, held: Held | None, books: Delivery) -> Stand:
        """One sample further; None: it was left out."""
        appended, num_new = self.appended, self.num_new
        if held is not None:
            if len(appended) > num_new:  # by somebody who was interrupted before it counted
                appended = self.new
            appended.append((position, held))
            num_new += 1
        num_read = self.num_read + 1
        return self._replace(delivery=books, appended=appended, num_new=num_new, num_read=num_read)

    def pending(self) -> Iterator[tuple[int, int]]:
        """Positions and tokens of samples that were read and stand in no delivered pack."""
        waiting = [*self.held.items(), *self.new]
        for group, members in self.ready:
            waiting += zip(group.positions, members, strict=True)
        return ((position, sizes[0]) for position, (_, sizes) in waiting)

    def place(self) -> dict[str, Any]:
        """Positions of the samples that are held, and how far the input was read."""
        carry = self.carry
        waiting = np.column_stack([carry.positions, carry.carries, carry.sizes]).tolist()
        new = [[position, 0, *sizes] for position, (_, sizes) in self.new]
        return {
            "read": self.num_read,
            "finished": self.finished,
            "waiting": [*waiting, *new],
            "ready": [
                [int(group.single_long), group.tokens, *group.positions] for group, _ in self.ready
            ],
        }
