"""Which rows of the global batch a rank keeps, and which streams it runs to make them.

A batch has B columns. Stream s of S owns the columns ``[s * B/S, (s+1) * B/S)``, rank r of W keeps
``[r * B/W, (r+1) * B/W)``: side by side, the ranks' batches are the global batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from quire.errors import InvalidOption
from quire.options import require_integer
from quire.stream.options import StreamOptions

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRows:
    """The rows of one rank; depends only on the shape, so that every rank can compute it."""

    options: StreamOptions
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        world_size = require_integer("world_size", self.world_size, 1)
        rank, batch_size = require_integer("rank", self.rank, 0), self.options.batch_size
        if rank >= world_size:
            raise InvalidOption(f"rank is {rank} but must be below world_size, {world_size}")
        if batch_size % world_size:
            raise InvalidOption(
                f"world_size is {world_size} but must divide {self.options.name('batch_size')}, "
                f"which is {batch_size}"
            )
        object.__setattr__(self, "rank", rank)
        object.__setattr__(self, "world_size", world_size)

    @property
    def columns(self) -> range:
        """The columns that this rank keeps."""
        width = self.options.batch_size // self.world_size
        return range(self.rank * width, (self.rank + 1) * width)

    @property
    def streams(self) -> list[int]:
        """The streams that this rank runs: all if they end, as an end is known only by running.

        >>> options = StreamOptions(max_length=8, batch_size=8, num_streams=4)
        >>> RankRows(options=options, rank=1, world_size=2).streams
        [2, 3]
        >>> RankRows(options=options, rank=5, world_size=8).streams
        [2]
        """
        if not self.options.repeat:
            return list(range(self.options.num_streams))
        return sorted({column // self._columns_per_stream for column in self.columns})

    @property
    def rows_per_stream(self) -> int:
        """Windows of each stream in a global batch."""
        return self.options.grad_accum * self._columns_per_stream

    def arrange(self, rows: Mapping[int, Sequence[Row]]) -> list[Row | None]:
        """The rows of this rank's batch from the rows of each stream; None where one is missing."""
        arranged: list[Row | None] = []
        for microbatch in range(self.options.grad_accum):
            for column in self.columns:
                stream, place = divmod(column, self._columns_per_stream)
                number = microbatch * self._columns_per_stream + place
                of_stream = rows[stream]
                arranged.append(of_stream[number] if number < len(of_stream) else None)
        return arranged

    @property
    def _columns_per_stream(self) -> int:
        return self.options.batch_size // self.options.num_streams
