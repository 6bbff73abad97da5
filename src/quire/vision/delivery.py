"""What is counted and logged as samples come in, leave in packs, or are left out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from quire.errors import InvalidDocument
from quire.vision.accounts import Account, Pending, Source
from quire.vision.budgets import Budgets
from quire.vision.telemetry import PackingTelemetry, PackRecorder

logger = logging.getLogger("quire.vision")
_LOGGED_OF_A_KIND = 20
"""Samples of an epoch that are logged one by one for the same reason; all are counted."""


class Delivery:
    """The books of an epoch in one process.

    What may fail half-way is entered in a copy, which takes their place when all of it is done.
    """

    def __init__(
        self,
        budgets: Budgets,
        max_bad: int = 0,
        source_of: Source | None = None,
        *,
        silent: bool = False,
    ) -> None:
        self._silent = silent
        self._budgets = budgets
        self._max_bad = max_bad
        self._account = Account(source_of)
        self._recorder = PackRecorder(budgets.tokens)
        self._logged: Counter[str] = Counter()
        self._num_bad = 0
        self._shares_recorder = False

    def copy(self) -> Delivery:
        """Books that go on from the same counts; these here are not written in any more.

        Cheap, once for every sample: packs are many, and copied only when one is added.
        """
        other = Delivery.__new__(Delivery)
        vars(other).update(vars(self))  # `copy.copy` is slower, for every sample
        other._account = self._account.copy()
        other._shares_recorder = True
        return other

    @property
    def num_input(self) -> int:
        """Samples that were read so far."""
        return self._account.ledger().documents.input

    def enter(self, position: int, tokens: int) -> None:
        """Count a sample that was read."""
        self._account.add("input", position, tokens)

    def drop(self, reason: str, position: int, tokens: int) -> None:
        """Count a sample that stands in no pack; one that is too long is warned of."""
        self._account.add(reason, position, tokens)
        if reason == "skipped_oversized":
            self._log(
                logging.WARNING,
                "skipped sample %d: its length of %d tokens is not below packing_length %d, or it "
                "is over another limit of a pack, and packing_allow_single_long is off",
                *(position, tokens, self._budgets.tokens),
            )

    def drop_bad(self, position: int, tokens: int, problem: Exception) -> None:
        """Count a sample that contradicts itself; an error once there are more than allowed."""
        self._num_bad += 1
        if self._num_bad > self._max_bad:
            more = f", after {self._max_bad} bad samples were left out" if self._max_bad else ""
            raise InvalidDocument(
                f"sample {position} {problem}{more}; mend the data, or let such samples be left "
                "out and counted with max_bad_records"
            ) from problem
        self._account.add("bad_record", position, tokens)
        if not self._silent:  # each of them: the budget bounds how many there are
            logger.warning("left out sample %d: it %s", position, problem)

    def emit(self, samples: Iterable[tuple[int, int]], *, single_long: bool) -> None:
        """Count a pack of samples, given as positions and tokens."""
        total = number = 0
        for position, tokens in samples:
            self._account.add("emitted", position, tokens)
            total, number = total + tokens, number + 1
            if single_long:
                self._log(
                    logging.INFO,
                    "sample %d is a pack of its own: its length of %d tokens is not below "
                    "packing_length %d, or it is over another limit of a pack",
                    *(position, tokens, self._budgets.tokens),
                )
        if self._shares_recorder:
            self._recorder, self._shares_recorder = self._recorder.copy(), False
        self._recorder.add(total, number, single_long=single_long)

    def telemetry(self, epoch: int, pending: Pending = ()) -> PackingTelemetry:
        """What was counted so far."""
        return self._recorder.telemetry(epoch, self._account.ledger(pending).check())

    def by_source(self, pending: Pending = ()) -> Mapping[str, Any]:
        """A ledger for every source."""
        return {name: part.check() for name, part in self._account.by_source(pending).items()}

    def to_state(self) -> dict[str, Any]:
        """Plain counts, for a saved state."""
        return {"account": self._account.to_state(), "packs": self._recorder.to_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from counts that `to_state` gave."""
        self._account.restore(state["account"])
        self._recorder.restore(state["packs"])
        self._num_bad = self._account.ledger().documents.dropped["bad_record"]

    def _log(self, level: int, message: str, *values: object) -> None:
        if self._silent:
            return
        self._logged[message] += 1
        if self._logged[message] <= _LOGGED_OF_A_KIND:
            logger.log(level, message, *values)
        if self._logged[message] == _LOGGED_OF_A_KIND:
            logger.log(level, "more of this kind are counted, and logged no longer")
