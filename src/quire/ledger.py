"""The ledger: what came in, what went out, what was dropped and why.

Every path of quire returns a `Ledger`, for which ``input == emitted + dropped + pending`` holds in
documents and in tokens. Paths that deliver incrementally count in a `RunningLedger`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from quire.errors import InvalidOption, QuireError, unknown_name
from quire.printable import counted

REASONS = frozenset(
    {
        "bad_record",
        "drop_last",
        "empty",
        "group_too_long",
        "rank_equalize",
        "row_too_short",
        "skipped_oversized",
        "too_long",
        "too_short",
        "truncated",
        "unsupervised",
        "unterminated",
    }
)


class LedgerImbalance(QuireError):
    """Documents or tokens were lost or repeated uncounted: a bug in quire or in a plug-in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Counts of documents; `TokenTally` counts tokens.

    >>> Tally(input=3, emitted=2, dropped={"empty": 1}) + Tally(input=1, pending=1)
    Tally(input=4, emitted=2, pending=1, dropped=Counter({'empty': 1}))
    """

    input: int = 0
    emitted: int = 0
    pending: int = 0
    """Read, but still in a buffer."""
    dropped: Mapping[str, int] = field(default_factory=Counter)
    """By reason; a missing reason counts as zero."""

    def __post_init__(self) -> None:
        if not isinstance(self.dropped, Mapping):
            raise InvalidOption(
                f"ledger: dropped is {self.dropped!r} but must map reasons to counts"
            )
        for reason, count in self.dropped.items():
            if reason not in REASONS:
                raise unknown_name("reason", reason, REASONS)
            _require_count(f"dropped[{reason!r}]", count)
        for name, value in self._counts().items():
            _require_count(name, value)
        kept = {reason: n for reason, n in sorted(self.dropped.items()) if n}
        object.__setattr__(self, "dropped", Counter(kept))

    @property
    def num_dropped(self) -> int:
        """The sum over all reasons."""
        return sum(self.dropped.values())

    @property
    def imbalance(self) -> int:
        """Input minus everything accounted for; zero in every correct run."""
        return self.input - self.emitted - self.pending - self.num_dropped

    def __add__(self, other: Self) -> Self:
        mine, theirs = self._counts(), other._counts()
        counts = {name: mine.get(name, 0) + theirs.get(name, 0) for name in {**mine, **theirs}}
        return type(self)(**counts, dropped=Counter(self.dropped) + Counter(other.dropped))

    def to_dict(self) -> dict[str, object]:
        """The counts as plain dicts and ints."""
        return {**self._counts(), "dropped": dict(self.dropped)}

    @classmethod
    def from_dict(cls, plain: object) -> Self:
        """The tally that `to_dict` returned."""
        items = _known_items(cls.__name__, plain, {part.name for part in fields(cls)})
        return cls(**items)  # type: ignore[arg-type]

    def _counts(self) -> dict[str, int]:
        given = {part.name: getattr(self, part.name) for part in fields(self)}
        return {
            name: value for name, value in given.items() if name != "dropped" and value is not None
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTally(Tally):
    """Counts of tokens, including tokens that quire added and padding."""

    overlap: int = 0
    """Tokens repeated at the start of a continuation (``stride``)."""
    special: int = 0
    """BOS and EOS that quire added, in emitted rows."""
    padding: int = 0
    """Positions in rows that hold no token."""
    trained: int | None = None
    """Tokens in rows that are targets of the loss, by their labels and loss masks; None without
    any. The first token of a fragment never is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Counts of documents and tokens; add two to merge them.

    A document counts as emitted when any of its tokens was, so tokens cut off a document appear
    only under ``tokens.dropped``.

    >>> part = Ledger(documents=Tally(input=2, emitted=2), tokens=TokenTally(input=7, emitted=7))
    >>> whole = part + Ledger(documents=Tally(input=1, dropped={"empty": 1}))
    >>> whole.documents.input, whole.documents.dropped["empty"], whole.tokens.emitted
    (3, 1, 7)
    >>> Ledger.from_json(whole.check().to_json()) == whole
    True
    """

    documents: Tally = field(default_factory=Tally)
    tokens: TokenTally = field(default_factory=TokenTally)

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(documents=self.documents + other.documents, tokens=self.tokens + other.tokens)

    def check(self) -> Ledger:
        """This ledger if it balances; otherwise an error that gives the difference."""
        for name, tally in (("documents", self.documents), ("tokens", self.tokens)):
            if tally.imbalance:
                raise LedgerImbalance(
                    f"{name}: {tally.input} came in but {tally.input - tally.imbalance} are "
                    f"accounted for ({tally.emitted} emitted, {tally.num_dropped} dropped, "
                    f"{tally.pending} pending); please report this with the options you used"
                )
        return self

    def trained_lines(self) -> list[str]:
        """A line about the trained tokens, if there are labels.

        >>> Ledger(tokens=TokenTally(input=8, emitted=8, trained=6)).trained_lines()
        ['trained: 6 of 8 tokens (75.0%)']
        """
        tokens, trained = self.tokens, self.tokens.trained
        if trained is None:
            return []
        total = tokens.emitted + tokens.overlap + tokens.special
        return [
            f"trained: {trained:,} of {counted(total, 'token')} ({trained / max(1, total):.1%})"
        ]

    def drop_lines(self) -> list[str]:
        """One line per reason, as printed by every command.

        >>> Ledger(documents=Tally(input=2, dropped={"empty": 2})).drop_lines()
        ['dropped as empty: 2 documents, 0 tokens']
        """
        documents, tokens = self.documents.dropped, self.tokens.dropped
        return [
            f"dropped as {reason}: {counted(documents.get(reason, 0), 'document')}, "
            f"{counted(tokens.get(reason, 0), 'token')}"
            for reason in sorted({*documents, *tokens})
        ]

    def to_dict(self) -> dict[str, object]:
        """The counts as plain dicts and ints."""
        return {"documents": self.documents.to_dict(), "tokens": self.tokens.to_dict()}

    def to_json(self) -> str:
        """One line of JSON with sorted keys, the same for equal ledgers."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, plain: object) -> Ledger:
        """The ledger that `to_dict` returned."""
        items = _known_items("Ledger", plain, {"documents", "tokens"})
        return cls(
            documents=Tally.from_dict(items.get("documents", {})),
            tokens=TokenTally.from_dict(items.get("tokens", {})),
        )

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The ledger that `to_json` wrote."""
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as error:
            raise InvalidOption(f"a ledger is one line of JSON: {error}") from None


class RunningLedger:
    """Counts that grow while documents pass; returns a `Ledger` of them at any time.

    >>> counts = RunningLedger()
    >>> counts.add("input", documents=3, tokens=9)
    >>> counts.add("emitted", documents=1, tokens=5)
    >>> counts.add("empty", documents=1)
    >>> counts.ledger(pending=(1, 4)).check().documents
    Tally(input=3, emitted=1, pending=1, dropped=Counter({'empty': 1}))
    """

    __slots__ = ("_counts",)

    def __init__(self, ledger: Ledger | None = None) -> None:
        """Start at zero, or from the counts of a ledger; its pending ones are not kept."""
        self._counts: dict[str, tuple[int, int]] = {}
        if ledger is not None:
            documents, tokens = ledger.documents, ledger.tokens
            for kind in _TOTALS:
                self.add(kind, getattr(documents, kind, 0), getattr(tokens, kind))
            if tokens.trained is not None:
                self.add("trained", tokens=tokens.trained)
            for reason in {*documents.dropped, *tokens.dropped}:
                self.add(reason, documents.dropped.get(reason, 0), tokens.dropped.get(reason, 0))

    def add(self, kind: str, documents: int = 0, tokens: int = 0) -> None:
        """Count documents and tokens as ``input``, ``emitted``, or dropped for a reason.

        ``special``, ``padding``, ``overlap`` and ``trained`` are tokens only.
        """
        before = self._counts.get(kind, (0, 0))
        self._counts[kind] = (before[0] + documents, before[1] + tokens)

    def copy(self) -> RunningLedger:
        """A ledger that continues from the same counts."""
        other = RunningLedger()
        other._counts = self._counts.copy()
        return other

    def ledger(self, pending: tuple[int, int] = (0, 0)) -> Ledger:
        """The counts so far; ``pending`` are the documents and tokens that are still buffered."""
        documents, tokens = (
            {kind: counts[i] for kind, counts in self._counts.items()} for i in (0, 1)
        )
        return Ledger(
            documents=Tally(**_tally_fields(documents, pending[0], _TOTALS[:2])),
            tokens=TokenTally(
                **_tally_fields(tokens, pending[1], _TOTALS), trained=tokens.get("trained")
            ),
        )

    def state_dict(self) -> dict[str, list[int]]:
        """Documents and tokens by kind, for JSON."""
        return {kind: list(counts) for kind, counts in sorted(self._counts.items())}

    def load_state_dict(self, state: Mapping[str, Sequence[int]]) -> None:
        """Continue from the counts that `state_dict` returned."""
        counts: dict[str, tuple[int, int]] = {}
        for kind, (documents, tokens) in state.items():
            if kind not in _KINDS:
                raise unknown_name("kind of count", kind, _KINDS)
            _require_count(kind, documents)
            _require_count(kind, tokens)
            counts[kind] = (documents, tokens)
        self._counts = counts


_TOTALS = ("input", "emitted", "overlap", "special", "padding")
_KINDS = REASONS.union(_TOTALS, ["trained"])


def _tally_fields(counts: Mapping[str, int], pending: int, totals: Sequence[str]) -> dict[str, Any]:
    dropped = {kind: number for kind, number in counts.items() if kind in REASONS}
    return {kind: counts.get(kind, 0) for kind in totals} | {"pending": pending, "dropped": dropped}


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidOption(f"ledger: {name} is {value!r} but must be an integer >= 0")


def _known_items(what: str, plain: object, known: set[str]) -> dict[str, object]:
    if not isinstance(plain, Mapping):
        raise InvalidOption(f"{what} is a {type(plain).__name__} but must be a mapping")
    for key in plain:
        if key not in known:
            raise unknown_name(f"key of {what}", key, known)
    return dict(plain)
