"""Several sources as one, by their shares of the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from quire.errors import InvalidState
from quire.stream.documents import SourceDocuments, StreamedDocument
from quire.stream.state import State, read_counts, read_fields


class Mixture:
    """Documents of the source that is furthest behind its share; of equals, the first.

    A source that is over leaves the others to go on.
    """

    def __init__(self, sources: Sequence[SourceDocuments], weights: Sequence[float]) -> None:
        self._sources = list(sources)
        self._costs = _whole_costs(weights)
        self._taken = [0] * len(sources)
        self._live = list(range(len(sources)))

    @property
    def epoch(self) -> int:
        """The smallest epoch of all sources."""
        return min(source.epoch for source in self._sources)

    @property
    def tokens_taken(self) -> list[int]:
        """Tokens from each source so far."""
        return list(self._taken)

    def next(self) -> StreamedDocument:
        """The next document; StopIteration when all sources are over."""
        while self._live:
            number = min(self._live, key=self._progress)
            try:
                document = self._sources[number].next()
            except StopIteration:
                self._live.remove(number)
                continue
            self._taken[number] += len(document.tokens)
            return document
        raise StopIteration

    def state(self) -> State:
        """The places in all sources, and the tokens taken from them."""
        return {
            "sources": [source.state() for source in self._sources],
            "taken": list(self._taken),
        }

    def restore(self, state: object) -> None:
        """Stand where a state was taken."""
        fields = read_fields("the mixture", state, ("sources", "taken"))
        count = len(self._sources)
        self._taken = read_counts("the mixture: taken", fields["taken"], count)
        places = fields["sources"]
        if not isinstance(places, list) or len(places) != count:
            raise InvalidState(f"the mixture's sources must be a list of {count}")
        for source, place in zip(self._sources, places, strict=True):
            source.restore(place)
        self._live = list(range(count))

    def _progress(self, number: int) -> int:
        return self._taken[number] * self._costs[number]


def _whole_costs(weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to 1 / weight: comparisons are exact on every machine.

    >>> _whole_costs([0.5, 0.3, 0.2])
    [6, 10, 15]
    """
    costs = [1 / Fraction(repr(float(weight))) for weight in weights]
    common = lcm(*(cost.denominator for cost in costs))
    return [int(cost * common) for cost in costs]
