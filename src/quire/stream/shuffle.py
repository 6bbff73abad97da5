"""Records in shuffle windows: read in order, given in an order that can be made again.

A shuffle window of n records is permuted by (seed, epoch, window). So its state is the place
where it starts in the source and how many of its records were given: O(1), and at most one window
is read again.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from quire.errors import InvalidOption, InvalidState, SourceChanged
from quire.stream.reader import Reader
from quire.stream.records import Chain, Record
from quire.stream.seeding import order_of
from quire.stream.state import State, read_count, read_fields
from quire.stream.walk import Share

_SLICE_RECORDS = 256
_SLICE_CHARACTERS = 1 << 20
_FIELDS = ("epoch", "window", "start", "position", "read", "digest")


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """Records that are encoded together, and what it takes to find them again."""

    records: Sequence[Record]
    epoch: int
    window: int
    """The number of the shuffle window in its epoch."""
    start: State
    """Where the window starts in the source."""
    position: int
    """Records of the window that were given before these."""
    read: int
    """Records of the window that had been read when these were given."""
    digest: str

    def state_after(self, count: int) -> State:
        """The state when so many of these records were used."""
        return {
            "epoch": self.epoch,
            "window": self.window,
            "start": self.start,
            "position": self.position + count,
            "read": self.read,
            "digest": self.digest,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowOptions:
    """How records are gathered."""

    size: int
    """Records of a window."""
    repeat: bool = True


class ShuffleWindows:
    """Slices of one stream of one source, epoch after epoch; each is of one window."""

    def __init__(self, reader: Reader, share: Share, options: WindowOptions) -> None:
        self._reader, self._share, self._options = reader, share, options
        self._barren_epochs = 0
        self._open_window(epoch=0, window=0)

    def next(self) -> Slice:
        """The next slice; StopIteration when the stream is over."""
        while True:
            if not self._share.shuffle:
                self._read(self._position + len(self._waiting) + _SLICE_RECORDS)
            elif not self._permuted:
                self._read(self._options.size)
                self._permute()
            if self._waiting:
                return self._take_slice()
            self._next_window()

    @property
    def share(self) -> Share:
        """Which part of the source these are of."""
        return self._share

    def first_state(self) -> State:
        """The state before the first slice of the window that is open."""
        return self._slice([]).state_after(0)

    def restore(self, state: object) -> None:
        """Stand where a state was taken; what had been read must be there again."""
        fields = read_fields("a shuffle window", state, _FIELDS)
        read = read_count("a shuffle window: read", fields["read"])
        position = read_count("a shuffle window: position", fields["position"], most=read)
        epoch = read_count("a shuffle window: epoch", fields["epoch"])
        window = read_count("a shuffle window: window", fields["window"])
        self._reader.restore(fields["start"])
        self._open_window(epoch, window)
        if read:
            self._read_again(read, fields["digest"])
        for _ in range(position):
            self._waiting.popleft()
        self._position = position

    def _open_window(self, epoch: int, window: int) -> None:
        start = self._reader.state()  # it may raise, and then this is still the window before
        if start["epoch"] != epoch:
            raise InvalidState(
                f"a shuffle window is of epoch {epoch} but starts in epoch {start['epoch']}; use a "
                "state as get_state() gave it"
            )
        self._epoch, self._window, self._start = epoch, window, start
        self._waiting: deque[Record] = deque()
        self._chain = Chain()
        self._position = 0
        self._permuted = self._epoch_over = False

    def _read(self, count: int) -> None:
        """Read on until the window has so many records, or a slice much text, or the epoch ends."""
        characters = 0
        count = min(count, self._options.size)
        while self._chain.count < count and not self._epoch_over:
            characters += self._read_one()
            if characters > _SLICE_CHARACTERS and not self._share.shuffle:
                return

    def _read_one(self) -> int:
        try:
            record = self._reader.next()
        except StopIteration:
            self._epoch_over = True
            return 0
        self._chain.add(record)
        self._waiting.append(record)
        return _size(record)

    def _read_again(self, read: int, digest: object) -> None:
        if self._share.shuffle and read > self._options.size:
            raise InvalidState(
                f"a shuffle window: read is {read} but a window has {self._options.size} records"
            )
        while self._chain.count < read and not self._epoch_over:
            self._read_one()
        if self._share.shuffle and read < self._options.size:
            self._read(read + 1)  # the window was the last of its epoch: is it still?
        if self._chain.digest != digest:
            raise _changed(read, self._chain.count)
        if self._share.shuffle:
            self._permute()

    def _permute(self) -> None:
        share, records = self._share, list(self._waiting)
        purpose = (share.seed, share.source, share.stream, self._epoch, self._window)
        order = order_of(len(records), "window", *purpose)
        self._waiting = deque(records[place] for place in order)
        self._permuted = True

    def _take_slice(self) -> Slice:
        records: list[Record] = []
        characters = 0
        while self._waiting and len(records) < _SLICE_RECORDS and characters <= _SLICE_CHARACTERS:
            records.append(self._waiting.popleft())
            characters += _size(records[-1])
        taken = self._slice(records)
        self._position += len(records)
        return taken

    def _slice(self, records: list[Record]) -> Slice:
        return Slice(
            records=records,
            epoch=self._epoch,
            window=self._window,
            start=self._start,
            position=self._position,
            read=self._chain.count,
            digest=self._chain.digest,
        )

    def _next_window(self) -> None:
        """The window behind this one, which is used up; in the next epoch, if this one is over."""
        is_barren = self._epoch_over and not self._chain.count and not self._window
        if not self._epoch_over:
            self._open_window(self._epoch, self._window + 1)
        elif not self._options.repeat:
            if is_barren and self._share.num_streams > 1:
                self._warn_of_nothing()
            raise StopIteration
        else:
            self._barren_epochs = self._barren_epochs + 1 if is_barren else 0
            if self._barren_epochs > self._share.max_barren_epochs:
                raise self._endless()
            self._reader.begin(self._epoch + 1)
            self._open_window(self._epoch + 1, window=0)

    def _endless(self) -> InvalidOption:
        remedy = "add documents"
        if self._share.num_streams > 1:
            deals_others = "set data.shuffle, which deals others in every epoch, "
            shuffle = "" if self._share.shuffle else deals_others
            remedy = f"add documents, take empty shards out, {shuffle}or lower data.num_streams"
        return InvalidOption(
            f"{self._share.name} finds no document in the source, and data.repeat would look for "
            f"ever: {self._reader.cause_of_nothing}; {remedy}"
        )

    def _warn_of_nothing(self) -> None:
        """The ledger counts the padding, and who does not read it pays for it."""
        warnings.warn(
            f"{self._share.name} finds no document in the source: {self._reader.cause_of_nothing}; "
            f"without another source its rows, one in {self._share.num_streams} of every batch, "
            "are padding (data.last_batch: pad), or no batch is whole (drop): take empty shards "
            "out, or lower data.num_streams",
            stacklevel=2,
        )


def _size(record: Record) -> int:
    return len(record) if isinstance(record, str) else 0


def _changed(read: int, found: int) -> SourceChanged:
    what = f"there are {found}" if found != read else "they are others"
    return SourceChanged(
        f"{read} documents that the state tells of were read again and {what}; the source must "
        "give the same documents in the same order, so restore it, or start anew"
    )
