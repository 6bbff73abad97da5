"""The windows of one packed stream: documents of all sources in, windows out, all counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import lcm

from quire.errors import InvalidState, QuireError
from quire.formats.bad_records import BadRecordBudget
from quire.ledger import Ledger, RunningLedger
from quire.stream.options import StreamOptions
from quire.stream.packers import PACKERS, PackerOptions, Window
from quire.stream.packers.packer import windows_from_json, windows_to_json
from quire.stream.shuffle import SourceDocuments, StreamedDocument
from quire.stream.state import State, read_counts, read_fields

_FIELDS = ("mixture", "packer", "ready", "over", "ledger")
_LARGEST_VOCABULARY = 1 << 31


class Mixture:
    """Several sources as one: the next document is of the source furthest behind its share.

    Among equals the first is taken. When a source ends, the others continue.
    """

    def __init__(self, sources: Sequence[SourceDocuments], weights: Sequence[float]) -> None:
        self._sources = list(sources)
        self._costs = _integer_costs(weights)
        self._taken = [0] * len(sources)
        self._live = list(range(len(sources)))

    @property
    def epoch(self) -> int:
        """The smallest epoch of all sources."""
        return min(source.epoch for source in self._sources)

    def next(self) -> StreamedDocument:
        """The next document; StopIteration when all sources have ended."""
        while self._live:
            number = self._furthest_behind() if len(self._live) > 1 else self._live[0]
            try:
                document = self._sources[number].next()
            except StopIteration:
                self._live.remove(number)
                continue
            self._taken[number] += len(document.tokens)
            return document
        raise StopIteration

    def _furthest_behind(self) -> int:
        return min(self._live, key=lambda number: self._taken[number] * self._costs[number])

    def state_dict(self) -> State:
        """The positions in all sources, and the tokens taken from each."""
        return {
            "sources": [source.state_dict() for source in self._sources],
            "taken": list(self._taken),
        }

    def load_state_dict(self, state: object) -> None:
        """Continue from a state."""
        fields = read_fields("the mixture", state, ("sources", "taken"))
        count = len(self._sources)
        self._taken = read_counts("the mixture: taken", fields["taken"], count)
        positions = fields["sources"]
        if not isinstance(positions, list) or len(positions) != count:
            raise InvalidState(f"the mixture's sources must be a list of {count}")
        for source, position in zip(self._sources, positions, strict=True):
            source.load_state_dict(position)
        self._live = list(range(count))


@dataclass(frozen=True, kw_only=True, slots=True)
class RowStreamSnapshot:
    """A row stream at one moment, unaffected by what it does afterwards."""

    mixture: State
    packer: Callable[[], State]
    ready: Sequence[Window]
    over: bool
    counts: RunningLedger
    pending: tuple[int, int]

    def ledger(self) -> Ledger:
        """The counts of that moment."""
        return self.counts.ledger(self.pending)

    def state_dict(self) -> State:
        """The state of that moment, for JSON."""
        return {
            "mixture": self.mixture,
            "packer": self.packer(),
            "ready": windows_to_json(self.ready),
            "over": self.over,
            "ledger": self.ledger().to_dict(),
        }


class RowStream:
    """Packs the documents of one stream into windows."""

    def __init__(self, options: StreamOptions, mixture: Mixture, budget: BadRecordBudget) -> None:
        self._mixture, self._budget, self._options = mixture, budget, options
        self._size = options.window_size
        self._vocab_size = options.vocab_size or _LARGEST_VOCABULARY
        self._packer = PACKERS[options.strategy](
            PackerOptions(
                window_size=self._size,
                vocab_size=self._vocab_size,
                buffer_size=options.buffer_size,
                max_documents_per_row=options.max_documents_per_row,
                min_tail=2 if options.add_eos else 1,
            )
        )
        self._num_bos = int(options.bos is not None)
        self._num_eos = int(options.eos is not None)
        """Tokens added before and after every document."""
        self._ready: deque[Window] = deque()
        self._over = False
        self._counts = RunningLedger()

    @property
    def epoch(self) -> int:
        """How many times the documents were read to their end."""
        return self._mixture.epoch

    @property
    def num_ready(self) -> int:
        """Windows that are ready to be taken."""
        return len(self._ready)

    def fill(self, count: int) -> None:
        """Pack until ``count`` windows are ready, or the stream has ended."""
        while len(self._ready) < count and not self._over:
            try:
                document = self._mixture.next()
            except StopIteration:
                self._over = True
                self._ready.extend(self._packer.flush())
                return
            self._add(document)

    def take(self, count: int) -> list[Window]:
        """Deliver up to ``count`` of the windows that are ready, and count the rest as padding."""
        windows = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
        documents, tokens = self._contents(windows)
        num_tokens = sum(len(window.tokens) for window in windows)
        self._counts.add("emitted", documents, tokens)
        self._counts.add("special", tokens=num_tokens - tokens)
        self._counts.add("padding", tokens=self._size * count - num_tokens)
        if self._options.trains_answers:
            self._counts.add("trained", tokens=sum(map(self._num_trained, windows)))
        return windows

    def drop(self) -> bool:
        """Drop the windows that are ready, as part of the last batch; False if there are none."""
        self.fill(1)
        self._counts.add("drop_last", *self._contents(self._ready))
        any_ready = bool(self._ready)
        self._ready.clear()
        return any_ready

    def snapshot(self) -> RowStreamSnapshot:
        """This moment, cheap to copy; its state becomes JSON when it is needed."""
        return RowStreamSnapshot(
            mixture=self._mixture.state_dict(),
            packer=self._packer.snapshot(),
            ready=tuple(self._ready),
            over=self._over,
            counts=self._counts.copy(),
            pending=self._pending(),
        )

    def load_state_dict(self, state: object) -> None:
        """Continue exactly from a state."""
        fields = read_fields("a stream", state, _FIELDS)
        if type(fields["over"]) is not bool:
            raise InvalidState(f"over is {fields['over']!r} but must be true or false")
        self._packer.load_state_dict(fields["packer"])
        self._ready = deque(windows_from_json(fields["ready"], self._size, self._vocab_size))
        self._over = fields["over"]
        self._counts = self._read_counts(fields["ledger"])
        self._budget.used = self._counts.ledger().documents.dropped["bad_record"]
        self._mixture.load_state_dict(fields["mixture"])
        if self._over:
            self._require_end()

    def _add(self, document: StreamedDocument) -> None:
        length, num_cut = len(document.tokens), document.num_cut
        if length:
            self._counts.add("input", 1, length - self._num_bos - self._num_eos + num_cut)
            if num_cut:
                self._counts.add("truncated", tokens=num_cut)
            self._ready.extend(self._packer.add(document.tokens))
            return
        self._counts.add("input", 1, num_cut)
        self._counts.add(document.reason, 1, num_cut)

    def _require_end(self) -> None:
        """Raise if there is another document: such a state would end an epoch early."""
        try:
            self._mixture.next()
        except StopIteration:
            return
        raise InvalidState(
            "the state says that the stream has ended, but its source continues; use a state "
            "exactly as it was saved"
        )

    def _contents(self, windows: Sequence[Window] | deque[Window]) -> tuple[int, int]:
        """Documents that start in these windows, and tokens without BOS and EOS."""
        documents = sum(window.num_documents for window in windows)
        num_ends = sum(window.num_ends for window in windows)
        tokens = sum(len(window.tokens) for window in windows)
        return documents, tokens - self._num_bos * documents - self._num_eos * num_ends

    def _num_trained(self, window: Window) -> int:
        """Targets in a window, by the rules of `BatchMaker`."""
        is_target = window.tokens >= 0
        if not self._options.train_on_eos:
            is_target &= window.tokens != self._options.eos_token_id
        starts = [0, *accumulate(window.lengths[:-1])]
        is_target[starts if self._options.mask_boundary_loss else 0] = False
        return int(is_target.sum())

    def _pending(self) -> tuple[int, int]:
        """Documents and tokens that are buffered; counted, not inferred."""
        documents, num_ends, tokens = self._packer.pending
        more_documents, more_tokens = self._contents(self._ready)
        tokens -= self._num_bos * documents + self._num_eos * num_ends
        return documents + more_documents, tokens + more_tokens

    def _read_counts(self, plain: object) -> RunningLedger:
        try:
            ledger = Ledger.from_dict(plain).check()
        except QuireError as error:
            raise InvalidState(f"the state's ledger: {error}") from error
        counts = RunningLedger(ledger)
        if counts.ledger(self._pending()) != ledger:
            raise InvalidState(
                "the state's ledger has other pending documents than its buffers hold; use a state "
                "exactly as it was saved"
            )
        return counts


def _integer_costs(weights: Sequence[float]) -> list[int]:
    """Integers in proportion to 1 / weight, so that comparisons are exact on every machine.

    >>> _integer_costs([0.5, 0.3, 0.2])
    [6, 10, 15]
    """
    costs = [1 / Fraction(repr(float(weight))) for weight in weights]
    common = lcm(*(cost.denominator for cost in costs))
    return [int(cost * common) for cost in costs]
