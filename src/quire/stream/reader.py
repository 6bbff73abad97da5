"""The records of a source in epoch order, shard after shard, with retries when the source fails."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quire.errors import InvalidOption, QuireError, SourceChanged, SourceError
from quire.plan.build import permutation
from quire.stream.options import StreamOptions
from quire.stream.records import BadRecord, Record, content_of
from quire.stream.sources import Shard, Shards, read_records
from quire.stream.state import State, read_count, read_fields

Result = TypeVar("Result")
_MAX_DOUBLINGS = 60
"""Waiting times beyond this many doublings never end, and 0 times them is not a float."""


def seeded_order(count: int, *purpose: object) -> list[int]:
    """A random order of ``count`` items that depends only on its purpose.

    >>> seeded_order(5, "shards", 0, 1) == seeded_order(5, "shards", 0, 1)
    True
    """
    key = " ".join(str(part) for part in purpose).encode()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:16], "little")
    order: list[int] = permutation(count, seed).tolist()
    return order


class RecordDigest:
    """A digest of records in order, which shows whether reading again gave the same ones.

    >>> one, other = RecordDigest(), RecordDigest()
    >>> one.add("a", "b"), other.add("ab")
    (None, None)
    >>> one.digest == other.digest
    False
    """

    __slots__ = ("_value", "count")

    def __init__(self) -> None:
        self.count = 0
        self._value = b""

    @property
    def digest(self) -> str:
        """The records so far, in 32 hexadecimal digits."""
        return self._value.hex()

    def add(self, *records: Record) -> None:
        """Add records."""
        value = self._value
        for record in records:
            kind = b"-" if isinstance(record, BadRecord) else b"+"
            data = value + kind + content_of(record).encode("utf-8", "surrogatepass")
            value = hashlib.blake2b(data, digest_size=16).digest()
        self._value = value
        self.count += len(records)


class _RecordHash:
    """What `RecordDigest` is for, in a third of the time; other processes have other hashes."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = self.value = 0

    def add(self, *records: Record) -> None:
        self.count += len(records)
        for record in records:
            self.value = hash((self.value, content_of(record)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The part of a source that one stream reads."""

    options: StreamOptions
    source: int = 0
    """The number of the source in a mixture."""
    stream: int = 0

    @property
    def description(self) -> str:
        """Which stream it is, in messages."""
        return f"stream {self.stream} of {self.options.num_streams}"

    @property
    def max_empty_epochs(self) -> int:
        """Epochs in a row without a token before the source counts as empty.

        Shuffled shards are dealt anew in every epoch, and some may be empty. If any shard has
        tokens, this many epochs without one have a probability of e**-32.
        """
        options = self.options
        return 32 * options.num_streams if options.shuffle and options.num_streams > 1 else 0

    def order(self, count: int, purpose: str, *numbers: int) -> list[int]:
        """A random order that belongs to this seed and source."""
        return seeded_order(count, purpose, self.options.seed, self.source, *numbers)


class ShardReader:
    """One stream's records of one epoch; its state is a position in that order.

    With at least as many shards as streams, the shards of an epoch are dealt to the streams in
    turn. With fewer, every stream reads all of them and keeps every `num_streams`-th record.
    """

    def __init__(self, shards: Shards, share: Share) -> None:
        self._shards, self._share = shards, share
        self._num_shards = len(shards.names)
        if not self._num_shards:
            raise InvalidOption("the source has no shards; give it at least one")
        self._digest = hashlib.sha256("\n".join(shards.names).encode()).hexdigest()[:16]
        self._deals_records = share.options.num_streams > self._num_shards
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self._epoch, self._place, self._number = epoch, 0, 0
        self._shard: Shard | None = None
        self._order = self._epoch_order(epoch)

    def read(self, most: int) -> list[Record]:
        """The next records of this stream, at least one; StopIteration at the end of the epoch."""
        if not self._deals_records:
            records = self._read_of_all(most)
            self._number += len(records)
            return records
        while True:  # one by one, so that the position is that of the last record kept
            records = self._read_of_all(1)
            number, self._number = self._number, self._number + 1
            if number % self._share.options.num_streams == self._share.stream:
                return records

    @property
    def reason_for_no_records(self) -> str:
        """Why this stream has no records, if the epoch had none."""
        num_streams = self._share.options.num_streams
        if self._deals_records:
            return (
                f"it keeps one document in {num_streams}, and there are fewer documents than "
                "streams"
            )
        names = ", ".join(self._shards.names[number] for number in self._order)[:200]
        if num_streams == 1:
            return f"every shard is empty ({names})"
        return (
            f"it reads one in {num_streams} of {self._num_shards} shards, and those are empty "
            f"({names})"
        )

    def state_dict(self) -> State:
        """The position after the last record."""
        return {
            "shards": self._digest,
            "epoch": self._epoch,
            "place": self._place,
            "number": self._number,
            "cursor": None if self._shard is None else self._shard.cursor(),
        }

    def load_state_dict(self, state: object) -> None:
        """Go to a position."""
        names = ("shards", "epoch", "place", "number", "cursor")
        fields = read_fields("the source's position", state, names)
        if fields["shards"] != self._digest:
            raise SourceChanged(
                f"the source has other shards than when the state was saved (now "
                f"{self._num_shards}: {', '.join(self._shards.names)[:200]}); use the same files, "
                "unchanged, or start a new stream"
            )
        self.begin(read_count("the source's epoch", fields["epoch"]))
        self._place = read_count("the source's place", fields["place"], most=len(self._order))
        self._number = read_count("the source's number of records", fields["number"])
        if fields["cursor"] is not None and self._place < len(self._order):
            self._shard = self._shards.open(self._order[self._place], fields["cursor"])

    def shard_at(self, state: State) -> str:
        """The name of the shard that a position is in, or that is read after it."""
        order = self._epoch_order(state["epoch"])
        return self._shards.names[order[min(int(state["place"]), len(order) - 1)]]

    def _read_of_all(self, most: int) -> list[Record]:
        while self._place < len(self._order):
            if self._shard is None:
                self._shard = self._shards.open(self._order[self._place], None)
            try:
                return read_records(self._shard, most)
            except StopIteration:
                self._shard = None
                self._place += 1
        raise StopIteration

    def _epoch_order(self, epoch: int) -> list[int]:
        share, options = self._share, self._share.options
        order = list(range(self._num_shards))
        if options.shuffle:
            order = share.order(self._num_shards, "shards", epoch)
        return order if self._deals_records else order[share.stream :: options.num_streams]


class RetryingReader:
    """The records of a `ShardReader`, none lost and none repeated when the source fails.

    A source that failed is opened again at the last mark, ``state_update_interval`` documents
    back at most, and what had been read since then is read again and compared.
    """

    def __init__(
        self,
        shards: ShardReader,
        options: StreamOptions,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._shards, self._options, self._sleep = shards, options, sleep
        self._broken = False
        self._mark()

    def begin(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self._shards.begin(epoch)
        self._broken = False
        self._mark()

    def read(self, most: int) -> list[Record]:
        """The next records, at least one, or StopIteration at the end of the epoch, never before.

        How many are returned at once depends on the source.
        """
        records = self._retried(lambda: self._advance(most))
        self._since_mark.add(*records)
        return records

    @property
    def reason_for_no_records(self) -> str:
        """Why there are no records, if the epoch had none."""
        return self._shards.reason_for_no_records

    def shard_at(self, state: State) -> str:
        """The name of the shard that a position is in."""
        return self._shards.shard_at(state)

    def state_dict(self) -> State:
        """The position after the last record."""
        self._retried(self._mark_here)
        return self._marked

    def load_state_dict(self, state: State) -> None:
        """Go to a position."""
        self._marked, self._since_mark, self._broken = state, _RecordHash(), True
        self._retried(self._read_again)

    def _retried(self, action: Callable[[], Result]) -> Result:
        """The result of an action; only errors of the source itself are retried."""
        failures = 0
        while True:
            try:
                return action()
            except StopIteration:
                raise
            except BaseException as error:
                # What raised may be unusable now, and would appear to be at its end if asked again.
                self._broken = True
                if isinstance(error, QuireError) or not isinstance(error, Exception):
                    raise
                failures += 1
                if failures > self._options.max_retries:
                    raise self._gave_up(failures, error) from error
                self._sleep(self._options.retry_delay_sec * 2 ** min(failures - 1, _MAX_DOUBLINGS))

    def _advance(self, most: int) -> list[Record]:
        if self._broken:
            self._read_again()
        if self._since_mark.count >= self._options.state_update_interval:
            self._mark()
        return self._shards.read(
            min(most, self._options.state_update_interval - self._since_mark.count)
        )

    def _mark_here(self) -> None:
        if self._broken:
            self._read_again()
        self._mark()

    def _mark(self) -> None:
        self._marked = self._shards.state_dict()
        self._since_mark = _RecordHash()

    def _read_again(self) -> None:
        """Open the source at the mark and skip what was delivered since, if it is the same."""
        self._shards.load_state_dict(self._marked)
        again = _RecordHash()
        try:
            while again.count < self._since_mark.count:
                again.add(*self._shards.read(self._since_mark.count - again.count))
        except StopIteration:
            raise changed_source(self._since_mark.count, again.count) from None
        if again.value != self._since_mark.value:
            raise changed_source(self._since_mark.count, again.count)
        self._broken = False

    def _gave_up(self, failures: int, error: Exception) -> SourceError:
        return SourceError(
            f"the source failed {failures} times in a row, {self._since_mark.count} documents "
            f"after {str(self._marked)[:300]}: {type(error).__name__}: {error}; no document was "
            "lost: fix the source and continue from the last state, or raise "
            f"{self._options.name('max_retries')}"
        )


def changed_source(expected: int, found: int) -> SourceChanged:
    """The error of a source that gave other documents when it was read again."""
    what = f"there are {found}" if found != expected else "they differ"
    return SourceChanged(
        f"{expected} documents were read again and {what}; the source must give the same documents "
        "in the same order: restore it, or start a new stream"
    )
