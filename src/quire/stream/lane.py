"""A lane: the windows of one packed stream, from its documents to what was delivered."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from quire.errors import InvalidState, QuireError
from quire.ledger import Ledger, Tally, TokenTally
from quire.stream.documents import BadRecordBudget, StreamedDocument
from quire.stream.mixture import Mixture
from quire.stream.packers import Packer
from quire.stream.state import State, read_fields
from quire.stream.windows import Window, windows_from_json, windows_to_json

_FIELDS = ("mixture", "packer", "ready", "over", "ledger")


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSnapshot:
    """A lane at one moment, whatever it does afterwards."""

    mixture: State
    packer: Callable[[], State]
    waiting: tuple[int, int]
    """Documents and tokens in the packer."""
    ready: Sequence[Window]
    over: bool
    counts: Counter[str]
    num_specials: int

    def ledger(self) -> Ledger:
        """What came in, went out and waits; counted, not inferred from each other."""
        return _ledger(self.counts, self.waiting, self.ready, self.num_specials)

    def to_json(self) -> State:
        """The lane's state."""
        return {
            "mixture": self.mixture,
            "packer": self.packer(),
            "ready": windows_to_json(self.ready),
            "over": self.over,
            "ledger": self.ledger().to_dict(),
        }


class Lane:
    """Documents in, windows out, each token counted on its way."""

    def __init__(
        self,
        mixture: Mixture,
        packer: Packer,
        budget: BadRecordBudget,
        *,
        window_size: int,
        vocab_size: int,
        num_specials: int = 0,
    ) -> None:
        self._mixture, self._packer = mixture, packer
        self._size, self._vocab_size = window_size, vocab_size
        self._budget = budget
        self._num_specials = num_specials
        """Tokens (BOS) that were put before the text of every document."""
        self._ready: deque[Window] = deque()
        self._over = False
        self._counts: Counter[str] = Counter()

    @property
    def epoch(self) -> int:
        """How often the documents were read to their end."""
        return self._mixture.epoch

    def fill(self, count: int) -> None:
        """Pack until so many windows are ready, or the stream is over."""
        while len(self._ready) < count and not self._over:
            try:
                document = self._mixture.next()
            except StopIteration:
                self._over = True
                self._ready.extend(self._packer.flush())
                return
            self._add(document)

    def take(self, count: int) -> list[Window]:
        """Deliver windows, as many as are ready up to a count."""
        windows = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
        self._count(windows, "emitted")
        self._counts["special"] += self._num_specials * _opened(windows)
        self._counts["padding"] += self._size * len(windows)
        self._counts["padding"] -= sum(len(window.tokens) for window in windows)
        return windows

    def pad(self, count: int) -> None:
        """Count rows that hold no token."""
        self._counts["padding"] += self._size * count

    def drop(self) -> bool:
        """Count what is ready as dropped with the last batch; whether there was anything."""
        self.fill(1)
        windows = list(self._ready)
        self._ready.clear()
        self._count(windows, "drop_last")
        return bool(windows)

    @property
    def num_ready(self) -> int:
        """Windows that wait to be taken."""
        return len(self._ready)

    def snapshot(self) -> LaneSnapshot:
        """All that is to know at this moment; cheap to make."""
        return LaneSnapshot(
            mixture=self._mixture.state(),
            packer=self._packer.freeze(),
            waiting=self._packer.pending,
            ready=tuple(self._ready),
            over=self._over,
            counts=Counter(self._counts),
            num_specials=self._num_specials,
        )

    def restore(self, state: object) -> None:
        """Continue exactly where the state was taken."""
        fields = read_fields("a stream", state, _FIELDS)
        if type(fields["over"]) is not bool:
            raise InvalidState(f"over is {fields['over']!r} but must be true or false")
        self._packer.restore(fields["packer"])
        self._ready = deque(windows_from_json(fields["ready"], self._size, self._vocab_size))
        self._over = fields["over"]
        self._counts = self._read_counts(fields["ledger"])
        self._budget.used = self._counts["bad_record"]
        self._mixture.restore(fields["mixture"])
        if self._over:
            self._require_end()

    def _add(self, document: StreamedDocument) -> None:
        counts, length = self._counts, len(document.tokens)
        counts["documents"] += 1
        if length:
            counts["tokens"] += length - self._num_specials + document.num_cut
            counts["truncated"] += document.num_cut
            self._ready.extend(self._packer.add(document.tokens))
        elif document.problem is None:
            counts["empty"] += 1
        else:
            counts["bad_record"] += 1

    def _require_end(self) -> None:
        """Raise if there is a document: a state that says otherwise would end an epoch early."""
        try:
            self._mixture.next()
        except StopIteration:
            return
        raise InvalidState(
            "the state says that the stream is over, but its source goes on; use a state as "
            "get_state() gave it"
        )

    def _count(self, windows: Sequence[Window], fate: str) -> None:
        self._counts[f"{fate} documents"] += _opened(windows)
        self._counts[f"{fate} tokens"] += _contents(windows, self._num_specials)

    def _read_counts(self, plain: object) -> Counter[str]:
        try:
            ledger = Ledger.from_dict(plain).check()
        except QuireError as error:
            raise InvalidState(f"the state's ledger: {error}") from error
        counts = _counts(ledger)
        if _ledger(counts, self._packer.pending, self._ready, self._num_specials) != ledger:
            raise InvalidState(
                "the state's ledger tells of other pending documents than its buffers hold; use a "
                "state as get_state() gave it"
            )
        return counts


def _opened(windows: Iterable[Window]) -> int:
    """Documents that open in these windows."""
    return sum(window.num_documents for window in windows)


def _contents(windows: Sequence[Window], num_specials: int) -> int:
    """Tokens of these windows without those that open documents."""
    return sum(len(window.tokens) for window in windows) - num_specials * _opened(windows)


def _ledger(
    counts: Counter[str], waiting: tuple[int, int], ready: Sequence[Window], num_specials: int
) -> Ledger:
    documents, tokens = waiting
    return Ledger(
        documents=Tally(
            input=counts["documents"],
            emitted=counts["emitted documents"],
            pending=documents + _opened(ready),
            dropped={
                "empty": counts["empty"],
                "bad_record": counts["bad_record"],
                "drop_last": counts["drop_last documents"],
            },
        ),
        tokens=TokenTally(
            input=counts["tokens"],
            emitted=counts["emitted tokens"],
            pending=tokens - num_specials * documents + _contents(ready, num_specials),
            dropped={
                "truncated": counts["truncated"],
                "drop_last": counts["drop_last tokens"],
            },
            special=counts["special"],
            padding=counts["padding"],
        ),
    )


def _counts(ledger: Ledger) -> Counter[str]:
    documents, tokens = ledger.documents, ledger.tokens
    return Counter(
        {
            "documents": documents.input,
            "emitted documents": documents.emitted,
            "empty": documents.dropped["empty"],
            "bad_record": documents.dropped["bad_record"],
            "drop_last documents": documents.dropped["drop_last"],
            "tokens": tokens.input,
            "emitted tokens": tokens.emitted,
            "truncated": tokens.dropped["truncated"],
            "drop_last tokens": tokens.dropped["drop_last"],
            "special": tokens.special,
            "padding": tokens.padding,
        }
    )
