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

    num_microbatches: int
    batch_size: int
    num_streams: int
    rank: int = 0
    world_size: int = 1
    runs_all: bool = False
    """Whether the rank runs all streams: the end of a stream is known only by running it."""

    @classmethod
    def of(cls, options: StreamOptions, rank: int, world_size: int) -> RankRows:
        """The rows that a rank keeps, if the world size divides the batch."""
        world_size = require_integer("world_size", world_size, 1)
        rank = require_integer("rank", rank, 0)
        if rank >= world_size:
            raise InvalidOption(f"rank is {rank} but must be below world_size, {world_size}")
        if options.batch_size % world_size:
            raise InvalidOption(
                f"world_size is {world_size} but must divide {options.name('batch_size')}, which "
                f"is {options.batch_size}"
            )
        return cls(
            num_microbatches=options.grad_accum,
            batch_size=options.batch_size,
            num_streams=options.num_streams,
            rank=rank,
            world_size=world_size,
            runs_all=not options.repeat,
        )

    @property
    def columns(self) -> range:
        """The columns that this rank keeps."""
        width = self.batch_size // self.world_size
        return range(self.rank * width, (self.rank + 1) * width)

    @property
    def streams(self) -> list[int]:
        """The streams that this rank runs.

        >>> shape = dict(num_microbatches=1, batch_size=8, num_streams=4)
        >>> RankRows(**shape, rank=1, world_size=2).streams
        [2, 3]
        >>> RankRows(**shape, rank=5, world_size=8).streams
        [2]
        """
        if self.runs_all:
            return list(range(self.num_streams))
        return sorted({column // self._columns_per_stream for column in self.columns})

    @property
    def rows_per_stream(self) -> int:
        """Windows of each stream in a global batch."""
        return self.num_microbatches * self._columns_per_stream

    def arrange(self, rows: Mapping[int, Sequence[Row]]) -> list[Row | None]:
        """The rows of this rank's batch from the rows of each stream; None where one is missing."""
        arranged: list[Row | None] = []
        for microbatch in range(self.num_microbatches):
            for column in self.columns:
                stream, place = divmod(column, self._columns_per_stream)
                number = microbatch * self._columns_per_stream + place
                of_stream = rows[stream]
                arranged.append(of_stream[number] if number < len(of_stream) else None)
        return arranged

    @property
    def _columns_per_stream(self) -> int:
        return self.batch_size // self.num_streams
