"""What came in, what went out, what was dropped and why.

Every path of quire returns a `Ledger`. Its equation, in documents and in tokens alike:
``input == emitted + dropped + pending``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

from quire.errors import InvalidOption, QuireError, unknown_name

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
    }
)


class LedgerImbalance(QuireError):
    """Something was lost or repeated without a count: a defect in quire or in a plug-in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Counts of documents; `TokenTally` counts tokens.

    >>> Tally(input=3, emitted=2, dropped={"empty": 1}) + Tally(input=1, pending=1)
    Tally(input=4, emitted=2, pending=1, dropped=Counter({'empty': 1}))
    """

    input: int = 0
    emitted: int = 0
    pending: int = 0
    """Read, and still waiting in a buffer."""
    dropped: Mapping[str, int] = field(default_factory=Counter)
    """By reason; a reason that never occurred counts zero."""

    def __post_init__(self) -> None:
        if not isinstance(self.dropped, Mapping):
            raise InvalidOption(f"ledger: dropped is {self.dropped!r} but maps reasons to counts")
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
        """Input minus all that is accounted for; zero in every correct run."""
        return self.input - self.emitted - self.pending - self.num_dropped

    def __add__(self, other: Self) -> Self:
        theirs = other._counts()
        counts = {name: value + theirs[name] for name, value in self._counts().items()}
        return type(self)(**counts, dropped=Counter(self.dropped) + Counter(other.dropped))

    def to_dict(self) -> dict[str, object]:
        """Plain dicts and ints."""
        return {**self._counts(), "dropped": dict(self.dropped)}

    @classmethod
    def from_dict(cls, plain: object) -> Self:
        """The tally that `to_dict` gave."""
        items = _known_items(cls.__name__, plain, {part.name for part in fields(cls)})
        return cls(**items)  # type: ignore[arg-type]

    def _counts(self) -> dict[str, int]:
        return {part.name: getattr(self, part.name) for part in fields(self) if part.type == "int"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenTally(Tally):
    """Counts of tokens, with those that came from nowhere and the places that hold none."""

    overlap: int = 0
    """Tokens repeated at the start of a continuation (``stride``)."""
    special: int = 0
    """Tokens that quire added, such as BOS."""
    padding: int = 0
    """Places in rows that hold no token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Counts of documents and tokens; add two to merge them.

    A document counts as emitted when any token of it was, so tokens that are cut off a document
    appear under ``tokens.dropped`` alone.

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
        """This ledger, if it balances; otherwise an error that says by how much it does not."""
        for name, tally in (("documents", self.documents), ("tokens", self.tokens)):
            if tally.imbalance:
                raise LedgerImbalance(
                    f"{name}: {tally.input} came in but {tally.input - tally.imbalance} are "
                    f"accounted for ({tally.emitted} emitted, {tally.num_dropped} dropped, "
                    f"{tally.pending} pending); please report this with the options you used"
                )
        return self

    def drop_lines(self) -> list[str]:
        """A line for every reason, as all commands print it.

        >>> Ledger(documents=Tally(input=2, dropped={"empty": 2})).drop_lines()
        ['dropped as empty: 2 documents, 0 tokens']
        """
        documents, tokens = self.documents.dropped, self.tokens.dropped
        return [
            f"dropped as {reason}: {documents.get(reason, 0):,} documents, "
            f"{tokens.get(reason, 0):,} tokens"
            for reason in sorted({*documents, *tokens})
        ]

    def to_dict(self) -> dict[str, object]:
        """Plain dicts and ints."""
        return {"documents": self.documents.to_dict(), "tokens": self.tokens.to_dict()}

    def to_json(self) -> str:
        """One line of JSON with sorted keys, the same for equal ledgers."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, plain: object) -> Ledger:
        """The ledger that `to_dict` gave."""
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
            raise InvalidOption(f"a ledger is one line of JSON, but {error}") from None


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidOption(f"ledger: {name} is {value!r} but a count is an integer >= 0")


def _known_items(what: str, plain: object, known: set[str]) -> dict[str, object]:
    if not isinstance(plain, Mapping):
        raise InvalidOption(f"{what} is read from a mapping, not from {type(plain).__name__}")
    for key in plain:
        if key not in known:
            raise unknown_name(f"key of {what}", key, known)
    return dict(plain)
