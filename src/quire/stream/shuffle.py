"""The documents of one source: shuffled in windows that can be repeated, and encoded ahead.

A shuffle window of n records is permuted by (seed, epoch, window). Its state is where it starts in
the source and how many of its records were delivered: O(1), and at most one window is read again.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import NamedTuple

from quire.errors import InvalidOption, InvalidState
from quire.formats.bad_records import BadRecordBudget
from quire.stream.encode import EncodedTexts, Encoder
from quire.stream.reader import RecordDigest, RetryingReader, Share, changed_source
from quire.stream.records import BadRecord, Record, size_of
from quire.stream.state import State, Tokens, read_count, read_fields
from quire.text.fast_tokenizer import TokenizerMismatch

_SLICE_RECORDS = 256
_SLICE_CHARACTERS = 1 << 20
_FIELDS = ("epoch", "window", "start", "position", "read", "digest")


@dataclass(frozen=True, slots=True)
class Slice:
    """Records that are encoded together, and what is needed to find them again."""

    records: Sequence[Record]
    state: State
    """The state before these records."""

    @property
    def epoch(self) -> int:
        """The epoch that they are from."""
        return int(self.state["epoch"])

    def state_after(self, count: int) -> State:
        """The state after the first ``count`` of these records."""
        return {**self.state, "position": self.state["position"] + count}


class ShuffleWindows:
    """Slices of one stream of one source, epoch after epoch; each is from a single window."""

    def __init__(self, reader: RetryingReader, share: Share) -> None:
        self._reader, self.share, self._options = reader, share, share.options
        options = self._options
        self._size = options.shuffle_buffer_size
        if not options.shuffle:
            self._size = options.state_update_interval
        self._num_empty_epochs = 0
        self._open_window(epoch=0, window=0)

    def next(self) -> Slice:
        """The next slice; StopIteration at the end of the stream."""
        while True:
            if not self._options.shuffle:
                self._read(self._position + len(self._records) + _SLICE_RECORDS)
            elif not self._permuted:
                self._read(self._size)
                self._permute()
            if self._records:
                return self._take_slice()
            self._next_window()

    def state_dict(self) -> State:
        """The state before the next slice."""
        return {
            "epoch": self._epoch,
            "window": self._window,  # its number in the epoch
            "start": self._start,  # where it starts in the source
            "position": self._position,  # how many of its records were delivered
            "read": self._digest.count,  # how many were read
            "digest": self._digest.digest,
        }

    def load_state_dict(self, state: object) -> None:
        """Continue from a state; what had been read must be there again."""
        fields = read_fields("a shuffle window", state, _FIELDS)
        read = read_count("a shuffle window: read", fields["read"])
        position = read_count("a shuffle window: position", fields["position"], most=read)
        epoch = read_count("a shuffle window: epoch", fields["epoch"])
        window = read_count("a shuffle window: window", fields["window"])
        self._reader.load_state_dict(fields["start"])
        self._open_window(epoch, window)
        if read:
            self._read_again(read, fields["digest"])
        for _ in range(position):
            self._records.popleft()
        self._position = position

    def place(self, part: Slice, number: int) -> str:
        """Where a record of a slice is in the source, for messages."""
        state, start = part.state, part.state["start"]
        index = state["position"] + number
        if self._options.shuffle:
            names = (self.share.stream, state["epoch"], state["window"])
            index = self.share.order(state["read"], "window", *names)[index]
        return (
            f"document {index} that {self.share.description} reads after record "
            f"{start['number']} of epoch {state['epoch']}, in {self._reader.shard_at(start)} or "
            "what follows it"
        )

    def _open_window(self, epoch: int, window: int) -> None:
        start = self._reader.state_dict()  # may raise, and then the window before is still open
        if start["epoch"] != epoch:
            raise InvalidState(
                f"a shuffle window is of epoch {epoch} but starts in epoch {start['epoch']}; use a "
                "state exactly as it was saved"
            )
        self._epoch, self._window, self._start = epoch, window, start
        self._records: deque[Record] = deque()
        self._digest = RecordDigest()
        self._position = 0
        self._permuted = self._epoch_ended = False

    def _read(self, count: int) -> None:
        """Read until the window has ``count`` records, a slice is large, or the epoch ends."""
        characters = 0
        count = min(count, self._size)
        while self._digest.count < count and not self._epoch_ended:
            if self._options.shuffle:
                self._read_some(count - self._digest.count)
                continue
            characters += sum(map(size_of, self._read_some(1)))
            if characters > _SLICE_CHARACTERS:
                return

    def _read_some(self, most: int) -> Sequence[Record]:
        """Add records, up to this many; none at the end of the epoch."""
        try:
            records = self._reader.read(most)
        except StopIteration:
            self._epoch_ended = True
            return ()
        self._digest.add(*records)
        self._records.extend(records)
        return records

    def _read_again(self, read: int, digest: object) -> None:
        shuffles = self._options.shuffle
        if shuffles and read > self._size:
            raise InvalidState(
                f"a shuffle window: read is {read} but a window has {self._size} records"
            )
        while self._digest.count < read and not self._epoch_ended:
            self._read_some(read - self._digest.count)
        if shuffles and read < self._size:
            self._read(read + 1)  # the window was the last of its epoch: is it still?
        if self._digest.digest != digest:
            raise changed_source(read, self._digest.count)
        if shuffles:
            self._permute()

    def _permute(self) -> None:
        records = list(self._records)
        order = self.share.order(
            len(records), "window", self.share.stream, self._epoch, self._window
        )
        self._records = deque(records[number] for number in order)
        self._permuted = True

    def _take_slice(self) -> Slice:
        ends = list(accumulate(map(size_of, islice(self._records, _SLICE_RECORDS))))
        count = min(len(ends), 1 + bisect_right(ends, _SLICE_CHARACTERS))
        records = [self._records.popleft() for _ in range(count)]
        state = self.state_dict()
        self._position += len(records)
        return Slice(records, state)

    def _next_window(self) -> None:
        """Open the next window, in the next epoch if this one has ended."""
        is_empty = self._epoch_ended and not self._digest.count and not self._window
        if not self._epoch_ended:
            self._open_window(self._epoch, self._window + 1)
        elif not self._options.repeat:
            if is_empty and self._options.num_streams > 1:
                self._warn_of_empty_stream()
            raise StopIteration
        else:
            self._num_empty_epochs = self._num_empty_epochs + 1 if is_empty else 0
            if self._num_empty_epochs > self.share.max_empty_epochs:
                raise self._endless_search()
            self._reader.begin(self._epoch + 1)
            self._open_window(self._epoch + 1, window=0)

    def _endless_search(self) -> InvalidOption:
        name, remedy = self._options.name, "add documents"
        if self._options.num_streams > 1:
            shuffle = f"set {name('shuffle')}, which deals others in every epoch, "
            remedy = (
                f"add documents, remove empty shards, {'' if self._options.shuffle else shuffle}or "
                f"lower {name('num_streams')}"
            )
        return InvalidOption(
            f"{self.share.description} finds no documents in the source, and {name('repeat')} "
            f"would search forever: {self._reader.reason_for_no_records}; {remedy}"
        )

    def _warn_of_empty_stream(self) -> None:
        name = self._options.name
        warnings.warn(
            f"{self.share.description} finds no documents in the source: "
            f"{self._reader.reason_for_no_records}; unless another source has some, its rows, one "
            f"in {self._options.num_streams} of every batch, are padding ({name('last_batch')}: "
            "pad), or no batch is complete (drop): remove empty shards, or lower "
            f"{name('num_streams')}",
            stacklevel=2,
        )


class StreamedDocument(NamedTuple):
    """One document of a source, possibly without tokens."""

    tokens: Tokens
    num_cut: int
    """Tokens that were dropped from its end, or all of them if it is too long."""
    reason: str
    """Why it is dropped, if it has no tokens."""
    problem: BadRecord | None = None
    """What is wrong with the record, if it is a bad one."""


class SourceDocuments:
    """The documents of one source in shuffled order, encoded ahead."""

    def __init__(
        self, windows: ShuffleWindows, encoder: Encoder, budget: BadRecordBudget, source: int = 0
    ) -> None:
        self._windows, self._encoder, self._budget = windows, encoder, budget
        self._source = source
        """Its number among those that the encoder knows."""
        self._reset(windows.state_dict(), from_start=True)

    @property
    def epoch(self) -> int:
        """How many times the source was read to its end."""
        return self._epoch

    def next(self) -> StreamedDocument:
        """The next document; StopIteration at the end of the source."""
        while not self._ready:
            self._next_slice()
        document = self._ready[0]
        if document.problem is not None:
            self._budget.spend(document.problem.problem, document.problem.fits)
        self._ready.popleft()
        self._used += 1
        if len(document.tokens):
            self._last_epoch_with_tokens = self._epoch
        return document

    def state_dict(self) -> State:
        """The position after the last document."""
        return self._state if self._slice is None else self._slice.state_after(self._used)

    def load_state_dict(self, state: State) -> None:
        """Continue from a position."""
        self._windows.load_state_dict(state)
        self._reset(state, from_start=False)

    def _reset(self, state: State, *, from_start: bool) -> None:
        self._state = state
        self._slice: Slice | None = None
        self._epoch = int(state["epoch"])
        self._used = 0
        self._ready: deque[StreamedDocument] = deque()
        self._ahead: deque[tuple[Slice, Callable[[], EncodedTexts]]] = deque()
        # An epoch that did not start here may have had its tokens before.
        self._last_epoch_with_tokens = -1 if from_start else int(state["epoch"])

    def _next_slice(self) -> None:
        self._encode_ahead()
        part, encoded = self._ahead[0]
        try:
            documents = encoded()
        except TokenizerMismatch as error:
            place = self._windows.place(part, error.document)
            raise TokenizerMismatch(f"{place}: {error}", error.document) from error
        self._require_tokens_in_epoch(part)
        self._ahead.popleft()
        self._slice, self._epoch, self._used = part, part.epoch, 0
        rows = zip(part.records, documents.split(), documents.num_cut.tolist(), strict=True)
        for number, (record, tokens, num_cut) in enumerate(rows):
            problem = record if isinstance(record, BadRecord) else None
            if (found := documents.problems.get(number)) is not None:
                problem = BadRecord(f"{self._windows.place(part, number)} {found}")
            reason = ""
            if not len(tokens):
                reason = "bad_record" if problem else documents.reason_of(number)
            self._ready.append(StreamedDocument(tokens, num_cut, reason, problem))

    def _encode_ahead(self) -> None:
        while len(self._ahead) <= self._encoder.num_ahead:
            try:
                part = self._windows.next()
            except Exception:  # also StopIteration: what was read before comes first
                if self._ahead:
                    return
                raise
            self._ahead.append((part, self._encoder.submit(part.records, self._source)))

    def _require_tokens_in_epoch(self, part: Slice) -> None:
        share = self._windows.share
        num_empty = part.epoch - 1 - self._last_epoch_with_tokens
        if part.epoch > self.epoch and num_empty > share.max_empty_epochs:
            raise InvalidOption(
                f"epoch {self.epoch} of the source has no token for {share.description}, and "
                f"{share.options.name('repeat')} would search forever; give it documents with text"
            )
