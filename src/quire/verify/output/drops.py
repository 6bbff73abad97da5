"""Why tokens are missing from an output, derived from the documents and the options.

The ledger is not trusted: every gap in a document must have a reason that holds for its own tokens
and labels. Where a gap can have one of two reasons, the ledger may count either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.printable import counted

Span: TypeAlias = tuple[int, int]
"""The first token of a part of a document, and the one after its last."""
_IGNORED = -100


class ExpectedDrops:
    """How many documents and tokens must have been dropped, by reason."""

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        prefix: int,
        has_eos: bool,
        eos_is_special: bool,
        has_rows: bool,
    ) -> None:
        self._prefix = prefix
        self._has_eos = has_eos
        self._uncounted = int(has_eos and eos_is_special)
        """The last tokens of a document that are never counted as dropped, nor as input."""
        self._has_rows = has_rows  # the shards of an index hold whole documents; plans drop some
        self._limit: int | None = options["drop_longer_than"]
        self._truncate_to: int | None = options.get("truncate_to")
        self._min_length = int(options["min_length"])
        self._in_pairs = options.get("record_kind") == "preference"
        """Whether documents share a row or are dropped together, and are never cut."""
        self._overlong = "split" if self._in_pairs else str(options["overlong"])
        self._stride = int(options["stride"])
        self._align = align = int(options.get("align", 1))
        self._longest = int(options["max_length"]) // align * align - prefix
        """The most tokens of a document that a row holds."""
        self._cuts_anywhere = self._overlong == "fill" or (
            options["strategy"] == "wrapped" and not self._in_pairs
        )
        """Whether documents are cut that would fit into a row."""
        self._short_rows_continue = self._overlong == "fill" or (
            self._cuts_anywhere and bool(options["max_documents_per_row"])
        )
        """Whether a document may continue from a short row in another one."""
        self.input: Counter[str] = Counter()
        self._least: Counter[tuple[str, str]] = Counter()
        self._most: Counter[tuple[str, str]] = Counter()

    def add_bad_record(self) -> None:
        """Count a record that cannot be read, and whose tokens are unknown."""
        self.input["documents"] += 1
        self._count("documents", "bad_record", 1)

    def truncated(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The tokens of a document without those that `truncate_to` cuts, which are counted."""
        content = len(ids) - self._has_eos
        limit = content if self._is_over_limit(len(ids)) else (self._truncate_to or content)
        if content <= limit:
            return ids
        num_cut = content - limit
        self.input.update(tokens=num_cut)
        self._count("tokens", "truncated", num_cut)
        return np.concatenate([ids[:limit], ids[content:]])

    def add_document(
        self,
        length: int,
        found: Sequence[Span],
        labels: npt.NDArray[Any] | None,
        together: Sequence[int] = (),
        oversized: bool = False,
    ) -> Span | None:
        """Count what a document lacks; the first part that the options do not explain, if any.

        ``together`` are the lengths of all documents that share its row; an ``oversized`` one has
        more images or patches than a row holds.
        """
        self.input.update(documents=1)
        if not length:
            self._count("documents", "empty", 1)
            return None
        self.input.update(tokens=length - self._uncounted)
        if self._is_too_long(length):
            self._count("documents", "too_long", 1)
            self._count("tokens", "too_long", length - self._uncounted)
            return (0, length) if found else None
        if oversized and self._overlong == "drop":
            self._count("documents", "skipped_oversized", 1)
            self._count("tokens", "skipped_oversized", length)
            return (0, length) if found else None
        if self._in_pairs and self._is_too_long_together(together):
            self._count("documents", "group_too_long", 1)
            self._count("tokens", "group_too_long", length - self._uncounted)
            return (0, length) if found else None
        is_short = may_be_short = False
        for start, stop, is_cut in self._missing_parts(length, found):
            uncounted = self._uncounted if stop == length else 0
            if is_cut:
                self._count("tokens", "truncated", stop - start - uncounted)
                continue
            is_whole = not found and length <= self._longest and not self._cuts_anywhere
            known = labels if length > 1 else None
            reasons = self._explain(start, stop, known, is_whole, uncounted)
            if reasons is None:
                return start, stop
            is_short, may_be_short = is_short or reasons[0], may_be_short or reasons[1]
        if not found:
            self._count("documents", "row_too_short", int(is_short), int(may_be_short))
            self._count("documents", "unsupervised", int(not may_be_short), int(not is_short))
        return None

    def problems(self, dropped: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
        """Drops of documents and of tokens that a ledger counts differently than expected."""
        for what, counts in dropped.items():
            expected = {reason for kind, reason in self._most if kind == what}
            for reason in sorted({*counts, *expected}):
                if (what, reason) == ("tokens", "bad_record"):
                    continue  # the tokens of such a record are unknown
                count, key = counts.get(reason, 0), (what, reason)
                least, most = self._least[key], self._most[key]
                if not least <= count <= most:
                    limits = str(least) if least == most else f"{least} to {most}"
                    given = counted(count, f"{what[:-1]}")
                    yield (
                        f"the ledger counts {given} as dropped for the reason {reason}, "
                        f"but the inputs give {limits}"
                    )

    def _is_too_long(self, length: int) -> bool:
        drops_long = self._has_rows and self._overlong == "drop"
        return self._is_over_limit(length) or (drops_long and length > self._longest)

    def _is_too_long_together(self, lengths: Sequence[int]) -> bool:
        spaces = (-(-(length + self._prefix) // self._align) * self._align for length in lengths)
        return sum(spaces) > self._longest + self._prefix

    def _is_over_limit(self, length: int) -> bool:
        return self._limit is not None and length - self._has_eos + self._prefix > self._limit

    def _missing_parts(self, length: int, found: Sequence[Span]) -> Iterator[tuple[int, int, bool]]:
        """(start, stop, whether it was truncated) of the missing parts with one reason each."""
        is_truncated = self._has_rows and length > self._longest
        cuts = set(self._fragment_ends(length))
        kept = range(length)
        if is_truncated and self._overlong == "truncate":
            kept = range(self._longest)
        elif is_truncated and self._overlong == "truncate_left":
            kept = range(length - self._longest, length)
        cuts |= {kept.start, kept.stop}
        for start, stop in gaps(length, found):
            inside = sorted(cut for cut in cuts if start < cut < stop)
            for part in pairwise([start, *inside, stop]):
                yield *part, part[0] not in kept

    def _fragment_ends(self, length: int) -> Iterator[int]:
        """Where a document that is split ends its fragments, except for the last."""
        if not self._has_rows or self._overlong != "split" or self._cuts_anywhere:
            return
        step = self._longest - self._stride
        # EOS is never a fragment by itself.
        last = length - 1 - (self._has_eos and (step > 1 or not self._stride))
        yield from (min(cut, last) for cut in range(self._longest, length, step))

    def _explain(
        self,
        start: int,
        stop: int,
        labels: npt.NDArray[Any] | None,
        is_whole: bool,
        uncounted: int,
    ) -> tuple[bool, bool] | None:
        """Whether a part is, and may be, in a row that was too short; None if it is unexplained.

        The alternative is that none of its labels is trained. `labels` is None where every token is
        trained, and for a document of one token, which has no target.
        """
        size, short = stop - start, self._min_length - 1 - self._prefix
        trained = np.arange(size)
        if labels is not None:
            trained = np.flatnonzero(labels[start:stop] != _IGNORED)
        span = int(trained[-1] - trained[0]) + 1 if len(trained) else 0
        may_be_short, may_be_unsupervised = short > 0, labels is not None
        if is_whole:  # one fragment, so one reason
            span = size if span else 0
            may_be_short, may_be_unsupervised = (
                may_be_short and span > 0,
                labels is not None and not span,
            )
        most = size if short > 0 and self._short_rows_continue else short
        if not self._has_rows or span > max(most, 0) or not (may_be_short or may_be_unsupervised):
            return None
        most_short = min(size, most) if may_be_unsupervised else size
        most_short = most_short if may_be_short else 0
        # Only documents without labels have an added EOS, and only one reason.
        self._count("tokens", "row_too_short", span - uncounted, most_short - uncounted)
        self._count("tokens", "unsupervised", size - most_short, size - span)
        return span > 0, may_be_short

    def _count(self, what: str, reason: str, least: int, most: int | None = None) -> None:
        self._least[what, reason] += least
        self._most[what, reason] += least if most is None else most


def gaps(length: int, fragments: Sequence[Span]) -> Iterator[Span]:
    """The parts of a document that are in no fragment.

    >>> list(gaps(10, [(2, 5), (4, 7)]))
    [(0, 2), (7, 10)]
    """
    reached = 0
    for start, stop in sorted(fragments):
        if start > reached:
            yield reached, start
        reached = max(reached, stop)
    if reached < length:
        yield reached, length


def dropped_by_shards(manifest: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """What the ledgers of all shards count as dropped, in documents and in tokens.

    The shards of an index hold what its plans drop, so they do not count it. In files of another
    system, it is the tokens that are in no document.
    """
    total: dict[str, Counter[str]] = {"documents": Counter(), "tokens": Counter()}
    total["tokens"].update(manifest.get("corpus", {}).get("dropped", {}))
    for shard in manifest["shards"]:
        for what, counts in total.items():
            counts.update(shard["ledger"][what]["dropped"])
    return total
