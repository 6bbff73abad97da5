"""Why an output lacks a document or a part of one, derived from the inputs and the options alone.

A ledger is not believed: every gap must have a reason that holds for its own tokens and labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.verify.stored import gaps

_IGNORED = -100
_OF_ROWS = ("row_too_short", "unsupervised")
"""Reasons that a gap may have together, in fragments of its own each."""


class Drops:
    """What the inputs say must be missing, counted by reason in documents and tokens."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        prefix: int,
        has_eos: bool,
        rows: bool,
        ends_with_eos: bool | None = None,
    ) -> None:
        self._options = options
        self._prefix = prefix
        self._has_eos = has_eos
        self._ends_with_eos = has_eos if ends_with_eos is None else ends_with_eos
        self._rows = rows  # an index keeps every document; its plans leave some out
        self.input: Counter[str] = Counter()
        self.least: dict[str, Counter[str]] = {"documents": Counter(), "tokens": Counter()}
        self.most: dict[str, Counter[str]] = {"documents": Counter(), "tokens": Counter()}

    def judge(
        self,
        length: int,
        found: Sequence[tuple[int, int]],
        labels: npt.NDArray[Any] | None,
    ) -> tuple[int, int] | None:
        """Count what a document lacks; the first part for which there is no reason, if any."""
        self.input["documents"] += 1
        self.input["tokens"] += self._countable(0, length, length)
        if not length:
            self._count("documents", "empty", 1)
            return None
        if self._is_too_long(length):
            self._count("documents", "too_long", 1)
            self._count("tokens", "too_long", self._countable(0, length, length))
            return (0, length) if found else None
        is_short = may_be_short = False
        for start, stop in self._pieces(length, found):
            for part in self._parts(start, stop, length):
                reasons = self._explain(*part, length, labels, whole=not found)
                if reasons is None:
                    return part[:2]
                is_short, may_be_short = is_short or reasons[0], may_be_short or reasons[1]
        if not found:
            self._between("documents", "row_too_short", int(is_short), int(may_be_short))
            self._between("documents", "unsupervised", int(not may_be_short), int(not is_short))
        return None

    def _pieces(self, length: int, found: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The gaps of a document, cut where one fragment of it ends and the next one begins."""
        cuts = sorted({*self._cuts(length)})
        for start, stop in gaps(length, found):
            yield from pairwise([start, *(cut for cut in cuts if start < cut < stop), stop])

    def _cuts(self, length: int) -> Iterator[int]:
        """Where a document that is split ends its fragments, but for the last."""
        if not self._rows or self._options["overlong"] != "split" or self._cuts_at_rows:
            return
        stride = int(self._options["stride"])
        alone = self._ends_with_eos and (self._fragment - stride > 1 or not stride)
        for cut in range(self._fragment, length, self._fragment - stride):
            yield min(cut, length - 1 - alone)  # EOS is never a fragment by itself

    def bad(self) -> None:
        """Count a bad record, whose tokens nobody knows."""
        self.input["documents"] += 1
        self._count("documents", "bad_record", 1)

    def problems(self, dropped: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
        """What a ledger counts otherwise, from its drops in documents and in tokens."""
        for what, counted in dropped.items():
            for reason in sorted({*counted, *self.most[what]}):
                if what == "tokens" and reason == "bad_record":
                    continue  # nobody knows how many tokens such a record has
                least, most = self.least[what][reason], self.most[what][reason]
                if not least <= counted.get(reason, 0) <= most:
                    yield (
                        f"{counted.get(reason, 0)} {what} are counted as dropped for the reason "
                        f"{reason}, but the inputs give {_range(least, most)} such {what}"
                    )

    def _is_too_long(self, length: int) -> bool:
        limit, content = self._options["max_len"], length - self._has_eos
        if limit is not None and content + self._prefix > limit:
            return True
        return self._rows and self._options["overlong"] == "drop" and length > self._fragment

    @property
    def _fragment(self) -> int:
        """The most tokens of a document that a row holds."""
        return int(self._options["max_length"]) - self._prefix

    @property
    def _cuts_at_rows(self) -> bool:
        """Whether a document may be cut though it fits into a row."""
        return bool(self._options["overlong"] == "fill" or self._options["strategy"] == "wrapped")

    @property
    def _rows_are_unknown(self) -> bool:
        """Whether a document may continue from a short row in another one."""
        return self._cuts_at_rows and bool(
            self._options["overlong"] == "fill" or self._options["max_documents_per_row"]
        )

    def _parts(self, start: int, stop: int, length: int) -> Iterator[tuple[int, int, bool]]:
        """(start, stop, whether it was cut off) of the parts of a gap that have one reason each."""
        policy, edge = self._options["overlong"], length
        if self._rows and length > self._fragment:
            edge = {"truncate": self._fragment, "truncate_left": length - self._fragment}.get(
                policy, length
            )
        cut_first = policy == "truncate_left" and edge != length
        for low, high, is_cut in (
            (start, min(stop, edge), cut_first),
            (max(start, edge), stop, not cut_first),
        ):
            if low < high:
                yield low, high, is_cut

    def _explain(
        self,
        start: int,
        stop: int,
        is_cut: bool,
        length: int,
        labels: npt.NDArray[Any] | None,
        *,
        whole: bool,
    ) -> tuple[bool, bool] | None:
        """Whether a part is and may be in a short row; None if there is no reason for it."""
        size = self._countable(start, stop, length)
        if is_cut:
            self._count("tokens", "truncated", size)
            return False, False
        short = int(self._options["min_len"]) - 1 - self._prefix
        taught = np.arange(stop - start)
        if labels is not None and length > 1:  # of one token no label is a target
            taught = np.flatnonzero(labels[start:stop] != _IGNORED)
        span = int(taught[-1] - taught[0]) + 1 if len(taught) else 0
        may_be_short, may_be_unsupervised = short > 0, labels is not None and length > 1
        if whole and length <= self._fragment and not self._cuts_at_rows:
            span = size if span else 0  # one fragment has one reason
            may_be_short, may_be_unsupervised = (
                may_be_short and span > 0,
                may_be_unsupervised and not span,
            )
        most = size if short > 0 and self._rows_are_unknown else short
        if not self._rows or span > max(most, 0):
            return None
        if not (may_be_short or may_be_unsupervised):
            return None
        at_most = min(size, most) if may_be_unsupervised else size
        at_most = at_most if may_be_short else 0
        self._between("tokens", "row_too_short", span, at_most)
        self._between("tokens", "unsupervised", size - at_most, size - span)
        return span > 0, may_be_short

    def _count(self, what: str, reason: str, number: int) -> None:
        self._between(what, reason, number, number)

    def _between(self, what: str, reason: str, least: int, most: int) -> None:
        self.least[what][reason] += least
        self.most[what][reason] += most

    def _countable(self, start: int, stop: int, length: int) -> int:
        """The tokens of a part that a ledger counts."""
        return stop - start


def shard_drops(manifest: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """What the ledgers of all shards count as dropped, in documents and in tokens.

    Those of an index count no drops of its plans: what a plan leaves out is still in the shards.
    """
    total: dict[str, Counter[str]] = {"documents": Counter(), "tokens": Counter()}
    for shard in manifest["shards"]:
        for what, counts in total.items():
            counts.update(shard["ledger"][what]["dropped"])
    return total


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
