"""Plan: which fragments are in which row, as flat arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from quire.errors import PlanError
from quire.ledger import Ledger
from quire.markup import block, figures, row_bar
from quire.plan.bounds import bound_of_sizes
from quire.plan.lengths import BoolArray, IntArray, Lengths, as_lengths
from quire.plan.options import PlanOptions

if TYPE_CHECKING:
    import pyarrow as pa


_ROWS_AT_A_TIME = 1 << 16


class Fragment(NamedTuple):
    """Tokens ``start:stop`` of a document."""

    document: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """Rows of fragments; made by `make_plan` and validated when it is created.

    Row r holds the fragments ``row_offsets[r]`` to ``row_offsets[r + 1]`` (exclusive). The arrays
    are read-only, and 32 bits wide if that is enough for every value.
    """

    row_offsets: IntArray
    documents: IntArray
    starts: IntArray
    stops: IntArray
    options: PlanOptions
    ledger: Ledger
    fingerprint: str
    """SHA-256 of the lengths that were planned."""

    def __post_init__(self) -> None:
        for array in (self.row_offsets, self.documents, self.starts, self.stops):
            array.setflags(write=False)
        self._check()

    @property
    def max_length(self) -> int:
        """The most tokens in a row."""
        return self.options.max_length

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self.row_offsets) - 1

    @property
    def num_fragments(self) -> int:
        """The number of fragments in all rows."""
        return len(self.documents)

    @cached_property
    def row_lengths(self) -> IntArray:
        """Tokens in each row, including prefixes: the length of the dense row."""
        return self._row_sums(self.stops - self.starts + self.options.prefix)

    @property
    def content(self) -> int:
        """Tokens of documents in all rows, EOS included; prefixes and alignment are not content."""
        return int((self.stops - self.starts).sum(dtype=np.int64))

    @property
    def num_eos(self) -> int:
        """The added EOS in all rows; the rest of the ledger's ``special`` are prefixes."""
        return self.ledger.tokens.special - self.options.prefix * self.num_fragments

    @property
    def utilization(self) -> float:
        """Content over rows × max_length."""
        places = self.num_rows * self.max_length
        return self.content / places if places else 0.0

    @cached_property
    def lower_bound(self) -> int:
        """A number of rows that no plan for these fragments can go below."""
        return bound_of_sizes(self.options.spaces(self.stops - self.starts), self.options)

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, row: int) -> list[Fragment]:
        """The fragments of one row.

        >>> from quire import make_plan
        >>> make_plan([3, 2, 3], max_length=10)[0]
        [Fragment(document=0, start=0, stop=3), Fragment(document=2, start=0, stop=3),
         Fragment(document=1, start=0, stop=2)]
        """
        row = range(self.num_rows)[row]
        part = slice(self.row_offsets[row], self.row_offsets[row + 1])
        columns = (self.documents[part], self.starts[part], self.stops[part])
        return [Fragment(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]

    def __iter__(self) -> Iterator[list[Fragment]]:
        return (self[row] for row in range(self.num_rows))

    def __repr__(self) -> str:
        return (
            f"Plan({self.num_rows} rows of {self.max_length}, {self.num_fragments} fragments, "
            f"{self.utilization:.3%} full, {self.options.strategy})"
        )

    def _repr_html_(self) -> str:
        about = {
            "rows": f"{self.num_rows:,} of {self.max_length:,} (no plan has fewer than "
            f"{self.lower_bound:,})",
            "fragments": self.num_fragments,
            "full": f"{self.utilization:.3%}",
            "strategy": self.options.strategy,
            "dropped documents": self.ledger.documents.num_dropped,
        }
        bars = [self._bar(row) for row in range(min(12, self.num_rows))]
        return block([figures("Plan", about), *bars])

    def _bar(self, row: int) -> str:
        stop, spans = 0, []
        for document, first, last in self[row]:
            start, stop = stop, stop + last - first + self.options.prefix
            spans.append((start, stop, f"document {document}, tokens {first}-{last - 1}"))
        return row_bar(spans, self.max_length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        mine, theirs = self._arrays(), other._arrays()
        same = all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
        return same and self.options == other.options and self.fingerprint == other.fingerprint

    __hash__ = None  # type: ignore[assignment]

    def check_lengths(self, lengths: Lengths) -> None:
        """Raise unless these are the lengths that were planned."""
        actual = require_planned(lengths, self.fingerprint, self.ledger, self.options)
        longest = actual[self.documents].astype(np.int64)
        _reject("fragment", self.stops > longest, self.stops, "stop {} is beyond its document")

    def to_arrow(self) -> pa.Table:
        """One record per row, with lists ``documents``, ``starts`` and ``stops``."""
        from quire.plan.plan_file import plan_table

        return plan_table(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as an Arrow IPC file that any Arrow reader opens."""
        from quire.plan.plan_file import save_plan

        save_plan(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], lengths: Lengths | None = None) -> Plan:
        """The plan in a file, memory-mapped; raises if it was made for other lengths."""
        from quire.plan.plan_file import load_plan

        plan = load_plan(path)
        if lengths is not None:
            plan.check_lengths(lengths)
        return plan

    def _arrays(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        return self.row_offsets, self.documents, self.starts, self.stops

    def _row_sums(self, values: IntArray) -> IntArray:
        if not self.num_rows:
            return np.zeros(0, dtype=np.int64)
        sums = np.empty(self.num_rows, dtype=np.int64)
        for first in range(0, self.num_rows, _ROWS_AT_A_TIME):
            offsets = self.row_offsets[first : first + _ROWS_AT_A_TIME + 1]
            # Cast chunk by chunk: reduceat with a cast is four times slower.
            part = values[offsets[0] : offsets[-1]].astype(np.int64)
            np.add.reduceat(
                part, offsets[:-1] - offsets[0], out=sums[first : first + len(offsets) - 1]
            )
        return sums

    def _check(self) -> None:
        offsets, counts = self.row_offsets, np.diff(self.row_offsets)
        if len({len(self.documents), len(self.starts), len(self.stops)}) != 1 or not (
            len(offsets) and offsets[0] == 0 and offsets[-1] == len(self.documents)
        ):
            raise PlanError("row_offsets must run from 0 to the number of fragments; plan again")
        _reject("row", counts < 1, counts, "a row has {} fragments but needs at least 1")
        cap = self.options.max_documents_per_row or len(self.documents)
        _reject("row", counts > cap, counts, f"a row has {{}} fragments but may have at most {cap}")
        if not len(self.documents):
            self._check_ledger(0)
            return
        number, lengths = self.ledger.documents.input, self.stops - self.starts
        if not 0 <= self.documents.min() <= self.documents.max() < number:
            outside = (self.documents < 0) | (self.documents >= number)
            _reject("fragment", outside, self.documents, f"document {{}} is not one of {number}")
        if self.starts.min() < 0 or lengths.min() < 1:
            turned = (self.starts < 0) | (lengths < 1)
            _reject("fragment", turned, self.starts, "start {} is negative or not below its stop")
        used = self._row_sums(self.options.spaces(lengths))
        space = self.options.row_space
        _reject("row", used > space, used, f"fragments take up {{}} tokens but a row holds {space}")
        self._check_ledger(int(lengths.sum(dtype=np.int64)))

    def _check_ledger(self, content: int) -> None:
        """Raise if a fragment is missing or repeated, which shows in the sums."""
        tokens, num_eos = self.ledger.tokens, self.num_eos
        most_eos = self.options.ends_with_eos * self.ledger.documents.emitted
        if content != tokens.emitted + tokens.overlap + num_eos or not 0 <= num_eos <= most_eos:
            raise PlanError(
                f"the fragments hold {content} tokens but the ledger counts {tokens.emitted} "
                f"emitted, {tokens.overlap} repeated and {num_eos} EOS; plan again"
            )


def require_planned(
    lengths: Lengths, fingerprint: str, ledger: Ledger, options: PlanOptions
) -> IntArray:
    """The lengths, if a plan with this fingerprint is for them; raises otherwise."""
    actual = as_lengths(lengths)
    if fingerprint_of(actual) != fingerprint:
        documents = ledger.documents.input
        tokens = ledger.tokens.input + options.ends_with_eos * documents
        raise PlanError(
            f"the plan was made for {documents} documents with {tokens} tokens, but these are "
            f"{len(actual)} documents with {int(actual.sum(dtype=np.int64))} tokens (or the "
            "same lengths in another order); plan again, or use the documents that were "
            "planned"
        )
    return actual


def fingerprint_of(lengths: IntArray) -> str:
    """SHA-256 of the lengths as `as_lengths` returns them: the type follows from the values.

    It includes their number, because two lengths of 16 bits have the bytes of one of 32.
    """
    digest = hashlib.sha256(len(lengths).to_bytes(8, "little"))
    little_endian = lengths.astype(lengths.dtype.newbyteorder("<"), copy=False)
    digest.update(memoryview(little_endian))  # type: ignore[arg-type]
    return digest.hexdigest()


def _reject(item: str, wrong: BoolArray, values: IntArray, message: str) -> None:
    if wrong.any():
        first = int(np.argmax(wrong))
        raise PlanError(f"{item} {first}: {message.format(values[first])}; plan again")
