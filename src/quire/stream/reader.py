"""A source that fails now and then, read as if it never did."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quire.errors import QuireError, SourceChanged, SourceError
from quire.stream.records import Chain, Record
from quire.stream.state import State
from quire.stream.walk import ShardWalk

Result = TypeVar("Result")
_MAX_DOUBLINGS = 60
"""A wait that was doubled more often has no end, and one of 0 would be times what no float is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryOptions:
    """How long a failing source is asked again."""

    max_retries: int = 3
    delay: float = 1.0
    """Seconds before the first retry; twice as many before each that follows."""
    mark_every: int = 2000
    """Documents between the places from which a failed source is read again."""


class Reader:
    """The records of a walk, none lost and none twice, with retries from the last mark."""

    def __init__(
        self, walk: ShardWalk, options: RetryOptions, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._walk, self._options, self._sleep = walk, options, sleep
        self._broken = False
        self._mark()

    def begin(self, epoch: int) -> None:
        """Stand before the first record of an epoch."""
        self._walk.begin(epoch)
        self._broken = False
        self._mark()

    def next(self) -> Record:
        """The next record, or StopIteration at the end of the epoch, never before it."""
        record = self._retried(self._advance)
        self._since_mark.add(record)
        return record

    @property
    def cause_of_nothing(self) -> str:
        """Why there is no record, if the epoch gave none."""
        return self._walk.cause_of_nothing

    def state(self) -> State:
        """The place behind the record that was given last."""
        self._retried(self._mark_here)
        return self._marked

    def restore(self, state: State) -> None:
        """Stand where a state was taken."""
        self._marked, self._since_mark, self._broken = state, Chain(), True
        self._retried(self._read_again)

    def _retried(self, action: Callable[[], Result]) -> Result:
        """What the action gives, in the end; only what the source itself raises is retried."""
        failures = 0
        while True:
            try:
                return action()
            except StopIteration:
                raise
            except BaseException as error:
                # Whatever raised may be dead now, and would seem to be at its end when asked again.
                self._broken = True
                if isinstance(error, QuireError) or not isinstance(error, Exception):
                    raise
                failures += 1
                if failures > self._options.max_retries:
                    raise self._gave_up(failures, error) from error
                self._sleep(self._options.delay * 2 ** min(failures - 1, _MAX_DOUBLINGS))

    def _advance(self) -> Record:
        if self._broken:
            self._read_again()
        if self._since_mark.count >= self._options.mark_every:
            self._mark()
        return self._walk.next()

    def _mark_here(self) -> None:
        if self._broken:
            self._read_again()
        self._mark()

    def _mark(self) -> None:
        self._marked = self._walk.state()
        self._since_mark = Chain()

    def _read_again(self) -> None:
        """Open the source at the mark and pass over what was given since, if it is the same."""
        self._walk.restore(self._marked)
        again = Chain()
        try:
            while again.count < self._since_mark.count:
                again.add(self._walk.next())
        except StopIteration:
            raise _changed(self._since_mark.count, again.count) from None
        if again.digest != self._since_mark.digest:
            raise _changed(self._since_mark.count, again.count)
        self._broken = False

    def _gave_up(self, failures: int, error: Exception) -> SourceError:
        return SourceError(
            f"the source failed {failures} times in a row, {self._since_mark.count} documents "
            f"behind {str(self._marked)[:300]}: {type(error).__name__}: {error}; no document was "
            "lost: mend the source and go on from the last state, or raise data.max_retries"
        )


def _changed(expected: int, found: int) -> SourceChanged:
    what = f"only {found} are there" if found < expected else "they are others"
    return SourceChanged(
        f"{expected} documents were read a second time and {what}; the source must give the same "
        "documents in the same order, so freeze it, or start anew"
    )
