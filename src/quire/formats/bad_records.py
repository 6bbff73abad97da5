"""Records that cannot be packed: dropped and counted up to a limit, then an error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument
from quire.formats.record_kinds import KINDS, remedy
from quire.ledger import Ledger, Tally, TokenTally
from quire.options.names import option

OPTION = "max_bad_records"


def over_budget(
    problem: str, limit: int, name: str | None = None, fits: str = ""
) -> InvalidDocument:
    """The error for the first bad record over the limit; ``problem`` names the record too.

    ``name`` is what its caller calls the limit; ``fits`` is the kind or column to use instead.
    """
    if fits in KINDS:
        return InvalidDocument(f"{problem}; {remedy(fits)}")
    name = name or option(OPTION)
    return InvalidDocument(
        f"{problem}; that is bad record {limit + 1} and {name} is {limit}: fix the data, or "
        f"raise {name} to drop and count such records" + (f"; {remedy(fits)}" if fits else "")
    )


class BadRecordBudget:
    """Counts bad records; one over the limit is an error, and is not counted."""

    def __init__(self, limit: int, name: str | None = None) -> None:
        self._limit, self._name = limit, name
        self.used = 0

    def spend(self, problem: str, fits: str = "") -> None:
        """Count a record that is dropped; ``problem`` names the record and what is wrong."""
        if self.used >= self._limit:
            raise over_budget(problem, self._limit, self._name, fits)
        self.used += 1


class BadRecords:
    """Which records of a dataset are dropped; raises as soon as there are too many."""

    def __init__(self, num_records: int, limit: int = 0) -> None:
        self._bad = np.zeros(num_records, dtype=bool)
        self._budget = BadRecordBudget(limit)
        self.reasons: dict[int, str] = {}
        """What is wrong with each dropped record."""

    @property
    def good(self) -> npt.NDArray[np.bool]:
        """Which records are kept."""
        return ~self._bad

    def has_pairs(self, num_documents: int) -> bool:
        """Whether each record gave two documents, if there are this many."""
        return num_documents > len(self._bad)

    def good_of(self, num_documents: int) -> npt.NDArray[np.bool]:
        """Which documents are kept; there are this many, one or two for each record."""
        return np.repeat(self.good, 1 + self.has_pairs(num_documents))

    def add(self, record: int, problem: str, fits: str = "") -> None:
        """Drop a record; the problem completes "record 7 ..."."""
        if not self._bad[record]:
            self._budget.spend(f"record {record} {problem}", fits)
            self._bad[record] = True
            self.reasons[record] = problem

    def ledger(self, lengths: npt.NDArray[np.int64] | None = None) -> Ledger:
        """What was dropped; ``lengths`` are the tokens of all records, if known."""
        tokens = 0 if lengths is None else int(lengths[~self.good_of(len(lengths))].sum())
        return Ledger(
            documents=Tally(input=self._budget.used, dropped={"bad_record": self._budget.used}),
            tokens=TokenTally(input=tokens, dropped={"bad_record": tokens}),
        )
