"""Running counts and log messages of one process's epoch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from quire.errors import InvalidDocument, InvalidState
from quire.ledger import REASONS, Ledger, RunningLedger
from quire.vision.state import read_count, read_rows
from quire.vision.telemetry import PackingTelemetry
from quire.vision.workers import Share

logger = logging.getLogger("quire.vision")
_MOST_MESSAGES = 20
"""How many samples of an epoch are logged individually for the same reason; all are counted."""
_KINDS = frozenset({"input", "emitted"}) | REASONS

SourceOf: TypeAlias = Callable[[int], str]
"""Returns the name of the dataset that the sample at a position comes from."""
TokenCounts: TypeAlias = Iterable[tuple[int, int]]
"""Positions and numbers of tokens of samples."""


class PackCounters:
    """Samples and tokens by dataset and by what happened to them, and how full packs were.

    Work that may fail half-way is counted in a copy, which replaces these counters once it is done.

    >>> counters = PackCounters(max_length=40)
    >>> counters.add("input", [(0, 30), (1, 5)]); counters.drop("drop_last", 1, 5)
    >>> counters.telemetry(pending=[(0, 30)]).ledger.documents
    Tally(input=2, emitted=0, pending=1, dropped=Counter({'drop_last': 1}))
    """

    def __init__(
        self,
        max_length: int,
        *,
        epoch: int = 0,
        max_bad_records: int = 0,
        source_of: SourceOf | None = None,
        worker: Share | None = None,
        silent: bool = False,
    ) -> None:
        self._max_length, self._epoch = max_length, epoch
        self._max_bad_records, self._source_of = max_bad_records, source_of
        self._worker, self._silent = worker or Share(), silent
        self._ledgers: dict[str, RunningLedger] = {}
        """By dataset. Copies share the ledgers, so a ledger is replaced and never changed."""
        self._fills: Counter[int] = Counter()
        """Packs, by their number of tokens; shared and replaced like the ledgers."""
        self._num_single_long = 0
        self._messages: Counter[str] = Counter()

    def copy(self) -> PackCounters:
        """Counters that continue from these; called for every sample."""
        other = PackCounters.__new__(PackCounters)
        vars(other).update(vars(self))  # faster than `copy.copy`
        other._ledgers = self._ledgers.copy()
        return other

    def num_samples(self, kind: str) -> int:
        """Samples counted as this kind, over all datasets."""
        return sum(ledger.state_dict().get(kind, [0])[0] for ledger in self._ledgers.values())

    def add(self, kind: str, samples: TokenCounts) -> None:
        """Count samples as ``input``, as ``emitted``, or as dropped for this reason."""
        for source, counts in self._by_source(samples).items():
            self._count(source, kind, *counts)

    def add_sample(self, kind: str, position: int, tokens: int) -> None:
        """Count one sample; faster than `add`, as it is called for every sample that is read."""
        self._count("" if self._source_of is None else self._source_of(position), kind, 1, tokens)

    def _count(self, source: str, kind: str, samples: int, tokens: int) -> None:
        shared = self._ledgers.get(source)
        self._ledgers[source] = ledger = RunningLedger() if shared is None else shared.copy()
        ledger.add(kind, samples, tokens)

    def _by_source(self, samples: TokenCounts) -> dict[str, tuple[int, int]]:
        """The number of samples and of their tokens, by dataset."""
        totals: dict[str, tuple[int, int]] = {}
        for position, tokens in samples:
            source = "" if self._source_of is None else self._source_of(position)
            before = totals.get(source, (0, 0))
            totals[source] = (before[0] + 1, before[1] + tokens)
        return totals

    def drop(self, reason: str, position: int, tokens: int) -> None:
        """Count a dropped sample; log a warning if it is too long."""
        self.add_sample(reason, position, tokens)
        if reason == "skipped_oversized":
            self._log(
                logging.WARNING,
                "skipped sample %d: its length of %d tokens is not below packing_length %d, or it "
                "exceeds another limit of a pack, and packing_allow_single_long is off",
                *(position, tokens, self._max_length),
            )

    def drop_bad(self, position: int, tokens: int, problem: Exception) -> None:
        """Count a malformed sample; raise an error once there are more than allowed."""
        allowed = self._max_bad_records
        if self.num_samples("bad_record") >= allowed:
            after = f", after {allowed} bad samples were skipped" if allowed else ""
            raise InvalidDocument(
                f"sample {position} {problem}{after}; fix the data, or have such samples skipped "
                "and counted with max_bad_records"
            ) from problem
        self.add_sample("bad_record", position, tokens)
        if not self._silent:  # every one of them: max_bad_records limits how many there are
            logger.warning("skipped sample %d: it %s", position, problem)

    def emit(self, packs: Iterable[tuple[TokenCounts, bool]]) -> None:
        """Count packs, each given by its samples and by whether it is a single long one."""
        self._fills = self._fills.copy()
        for samples, single_long in packs:
            sizes = list(samples)
            self.add("emitted", sizes)
            total = sum(tokens for _, tokens in sizes)
            self._fills[min(total, self._max_length)] += 1
            self._num_single_long += single_long
            for position, tokens in sizes if single_long else ():
                self._log(
                    logging.INFO,
                    "sample %d gets a pack of its own: its length of %d tokens is not below "
                    "packing_length %d, or it exceeds another limit of a pack",
                    *(position, tokens, self._max_length),
                )

    def _log(self, level: int, message: str, *values: object) -> None:
        if self._silent:
            return
        self._messages[message] += 1
        if self._messages[message] <= _MOST_MESSAGES:
            logger.log(level, message, *values)
        if self._messages[message] == _MOST_MESSAGES:
            logger.log(level, "further samples of this kind are counted but not logged")

    def log_telemetry(self) -> None:
        """Log the counts of the whole epoch; a worker counts only its own part."""
        worker = self._worker
        prefix = f"worker {worker.index} of {worker.count}: " if worker.count > 1 else ""
        logger.info("%s%s", prefix, self.telemetry().line())

    def telemetry(self, pending: TokenCounts = ()) -> PackingTelemetry:
        """The counts so far; ``pending`` are the samples that wait in a buffer."""
        ledger = sum(self.source_ledgers(pending).values(), Ledger()).check()
        return PackingTelemetry.of_packs(
            self._fills,
            epoch=self._epoch,
            packing_length=self._max_length,
            num_single_long=self._num_single_long,
            ledger=ledger,
        )

    def source_ledgers(self, pending: TokenCounts = ()) -> dict[str, Ledger]:
        """A ledger for each dataset; without fusion there is one, without a name."""
        waiting = self._by_source(pending)
        return {
            source: self._ledgers[source].ledger(waiting.get(source, (0, 0))).check()
            for source in sorted(self._ledgers)
        }

    def state_dict(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "account": [
                [source, kind, *counts]
                for source, ledger in sorted(self._ledgers.items())
                for kind, counts in ledger.state_dict().items()
            ],
            "packs": {
                "fills": [[size, number] for size, number in sorted(self._fills.items())],
                "samples": self.num_samples("emitted"),
                "single_long": self._num_single_long,
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from counts that `state_dict` returned."""
        for source, kind, documents, tokens in read_rows("account", state["account"], 4):
            if not isinstance(source, str) or not isinstance(kind, str) or kind not in _KINDS:
                raise InvalidState(f"the state's account has an entry {source!r}, {kind!r}")
            ledger = self._ledgers.setdefault(source, RunningLedger())
            ledger.add(kind, read_count(kind, documents), read_count(kind, tokens))
        packs = state["packs"]
        for size, number in read_rows("fills", packs.get("fills"), 2):
            tokens = read_count("fill", size, self._max_length)
            self._fills[tokens] = read_count("packs", number)
        self._num_single_long = read_count("single-long packs", packs.get("single_long"))
