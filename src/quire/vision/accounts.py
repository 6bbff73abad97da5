"""Running counts of what became of samples, for each source; a `Ledger` on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from quire.errors import InvalidState
from quire.ledger import REASONS, Ledger, Tally, TokenTally
from quire.vision.state import read_count, read_rows

Source: TypeAlias = Callable[[int], str]
"""Names the source of the sample at a position."""
Pending: TypeAlias = Iterable[tuple[int, int]]
_KINDS = frozenset({"input", "emitted"}) | REASONS


class Account:
    """Samples and tokens by source and by what became of them.

    >>> account = Account()
    >>> account.add("input", 0, 30); account.add("input", 1, 5); account.add("drop_last", 1, 5)
    >>> account.ledger(pending=[(0, 30)]).check().documents
    Tally(input=2, emitted=0, pending=1, dropped=Counter({'drop_last': 1}))
    """

    def __init__(self, source_of: Source | None = None) -> None:
        self._source_of = source_of
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}
        """Samples and tokens, by source and kind."""

    def add(self, kind: str, position: int, tokens: int) -> None:
        """Count one sample as ``input``, as ``emitted``, or under the reason it was dropped for."""
        key = ("" if self._source_of is None else self._source_of(position), kind)
        number, total = self._counts.get(key, (0, 0))
        self._counts[key] = (number + 1, total + tokens)

    def copy(self) -> Account:
        """An account that goes on from the same counts."""
        other = Account(self._source_of)
        other._counts = self._counts.copy()
        return other

    def ledger(self, pending: Pending = ()) -> Ledger:
        """The counts over all sources; ``pending`` are the samples that wait, and their tokens."""
        return sum(self.by_source(pending).values(), Ledger())

    def by_source(self, pending: Pending = ()) -> dict[str, Ledger]:
        """The counts of each source; a dataset that was not fused has one without a name."""
        waiting = Account(self._source_of)
        for position, tokens in pending:
            waiting.add("pending", position, tokens)
        counts = self._counts | waiting._counts
        return {
            source: Ledger(
                documents=Tally(
                    **_parts({k: n for (s, k), (n, _) in counts.items() if s == source})
                ),
                tokens=TokenTally(
                    **_parts({k: n for (s, k), (_, n) in counts.items() if s == source})
                ),
            )
            for source in sorted({source for source, _ in counts})
        }

    def to_state(self) -> list[list[Any]]:
        """Lists of source, kind, samples and tokens."""
        return [[*key, *counts] for key, counts in sorted(self._counts.items())]

    def restore(self, counts: object) -> None:
        """Go on from counts that `to_state` gave."""
        for source, kind, documents, tokens in read_rows("account", counts, 4):
            if not isinstance(source, str) or not isinstance(kind, str) or kind not in _KINDS:
                raise InvalidState(f"the state's account has an entry {source!r}, {kind!r}")
            self._counts[source, kind] = (read_count(kind, documents), read_count(kind, tokens))


def _parts(counts: Mapping[str, int]) -> dict[str, Any]:
    kept = {name: counts.get(name, 0) for name in ("input", "emitted", "pending")}
    return {**kept, "dropped": {name: n for name, n in counts.items() if name in REASONS}}
