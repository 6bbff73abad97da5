"""Records that cannot be packed: counted up to a budget, then an error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument
from quire.ledger import Ledger, Tally, TokenTally


class BadRecords:
    """Which records are left out; raises as soon as there are more than the budget allows."""

    def __init__(self, num_records: int, budget: int = 0) -> None:
        self._bad = np.zeros(num_records, dtype=bool)
        self._count = 0
        self._budget = budget

    @property
    def good(self) -> npt.NDArray[np.bool]:
        """Which records are fine."""
        return ~self._bad

    def add(self, record: int, problem: str) -> None:
        """Leave out a record; the problem is said in a way that completes 'record 7 ...'."""
        if self._bad[record]:
            return
        self._bad[record] = True
        self._count += 1
        if self._count > self._budget:
            raise over_budget(f"record {record} {problem}", self._budget)

    def ledger(self, lengths: npt.NDArray[np.int64] | None = None) -> Ledger:
        """What was left out; ``lengths`` are the tokens of all records, where they are known."""
        tokens = 0 if lengths is None else int(lengths[self._bad].sum())
        return Ledger(
            documents=Tally(input=self._count, dropped={"bad_record": self._count}),
            tokens=TokenTally(input=tokens, dropped={"bad_record": tokens}),
        )


def over_budget(problem: str, budget: int) -> InvalidDocument:
    """The error for one bad record too many.

    >>> str(over_budget("record 7 has no text", budget=1)).partition(";")[0]
    'record 7 has no text, after 1 bad record was skipped'
    """
    skipped = f"{budget} bad record was" if budget == 1 else f"{budget} bad records were"
    after = f", after {skipped} skipped" if budget else ""
    return InvalidDocument(
        f"{problem}{after}; fix the data, or raise max_bad_records to skip and count such records"
    )
