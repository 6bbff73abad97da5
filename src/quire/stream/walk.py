"""The records of one stream in the order of an epoch: shard after shard."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from quire.errors import InvalidOption, SourceChanged
from quire.stream.records import Record
from quire.stream.seeding import order_of
from quire.stream.sources import Shard, Shards
from quire.stream.state import State, read_count, read_fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Which part of a source a stream reads, and in which order."""

    seed: int = 0
    shuffle: bool = False
    """Whether the order of shards is another in every epoch."""
    source: int = 0
    """The number of the source in a mixture."""
    stream: int = 0
    num_streams: int = 1

    @property
    def name(self) -> str:
        """Which stream it is, in messages."""
        return f"stream {self.stream} of {self.num_streams}"

    @property
    def max_barren_epochs(self) -> int:
        """Epochs in a row without a token before there is no hope for one.

        The shards that a stream is dealt are others in every epoch if they are shuffled, and some
        may be empty. That none has a token so often has a chance of e**-32 where one shard has any.
        """
        return 32 * self.num_streams if self.shuffle and self.num_streams > 1 else 0


class ShardWalk:
    """One stream's records of one epoch; its state is a place in that order.

    With at least as many shards as streams, the shards of an epoch are dealt to the streams in
    turn. With fewer, every stream reads all of them and keeps each `num_streams`-th record.
    """

    def __init__(self, shards: Shards, share: Share) -> None:
        self._shards, self._share = shards, share
        self._num_shards = len(shards.names)
        if not self._num_shards:
            raise InvalidOption("the source has no shard; give it at least one")
        self._digest = hashlib.sha256("\n".join(shards.names).encode()).hexdigest()[:16]
        self._deals_records = share.num_streams > self._num_shards
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Stand before the first record of an epoch."""
        self._epoch, self._place, self._number = epoch, 0, 0
        self._shard: Shard | None = None
        self._order = self._epoch_order(epoch)

    def next(self) -> Record:
        """The next record of this stream; StopIteration at the end of the epoch."""
        share = self._share
        while True:
            record = self._next_of_all()
            number, self._number = self._number, self._number + 1
            if not self._deals_records or number % share.num_streams == share.stream:
                return record

    @property
    def cause_of_nothing(self) -> str:
        """Why this stream has no record, if the epoch gave none."""
        streams = self._share.num_streams
        if self._deals_records:
            return f"it keeps one document in {streams}, and there are fewer documents than streams"
        names = ", ".join(self._shards.names[number] for number in self._order)[:200]
        if streams == 1:
            return f"every shard is empty ({names})"
        return (
            f"of {self._num_shards} shards it is dealt one in {streams}, and those are empty "
            f"({names})"
        )

    def state(self) -> State:
        """The place behind the record that was given last."""
        return {
            "shards": self._digest,
            "epoch": self._epoch,
            "place": self._place,
            "number": self._number,
            "cursor": None if self._shard is None else self._shard.cursor(),
        }

    def restore(self, state: object) -> None:
        """Stand where a state was taken."""
        names = ("shards", "epoch", "place", "number", "cursor")
        fields = read_fields("the source's place", state, names)
        if fields["shards"] != self._digest:
            raise SourceChanged(
                f"the source has other shards than when the state was saved (now "
                f"{self._num_shards}: {', '.join(self._shards.names)[:200]}); give it the same "
                "files, unchanged, or start anew"
            )
        self.begin(read_count("the source's epoch", fields["epoch"]))
        place = read_count("the source's place", fields["place"], most=len(self._order))
        self._place = place
        self._number = read_count("the source's number of records", fields["number"])
        if fields["cursor"] is not None and place < len(self._order):
            self._shard = self._shards.open(self._order[place], fields["cursor"])

    def _next_of_all(self) -> Record:
        while self._place < len(self._order):
            if self._shard is None:
                self._shard = self._shards.open(self._order[self._place], None)
            try:
                return self._shard.next()
            except StopIteration:
                self._shard = None
                self._place += 1
        raise StopIteration

    def _epoch_order(self, epoch: int) -> list[int]:
        share = self._share
        order = list(range(self._num_shards))
        if share.shuffle:
            order = order_of(self._num_shards, "shards", share.seed, share.source, epoch)
        return order if self._deals_records else order[share.stream :: share.num_streams]
