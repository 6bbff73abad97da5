"""StepPlan: the rows of one training step, as flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from quire.errors import InvalidOption
from quire.ledger import Ledger
from quire.options import require_integer
from quire.plan.lengths import FloatArray, IntArray, narrowest_signed
from quire.printable import counted
from quire.step.loss import loss_weights
from quire.step.options import StepOptions
from quire.step.values import (
    Layout,
    Per,
    RowRange,
    gather_rows,
    read_values,
    unpack_rows,
)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StepPlan:
    """Which sequences every rank packs into every micro-step; made by `pack_step`.

    Row ``rank * num_micro_steps + micro_step`` holds the pieces ``row_offsets[row]`` to
    ``row_offsets[row + 1]`` (exclusive), in the order of their sequences. A piece is a whole
    sequence unless sequences are split.
    """

    options: StepOptions
    num_micro_steps: int
    """Micro-steps, the same number on every rank."""
    lower_bound: int
    """A number of micro-steps that no plan of the same pieces, under the same options, can go
    below."""
    row_offsets: IntArray
    documents: IntArray
    """The sequence of every piece."""
    starts: IntArray
    stops: IntArray
    lengths: IntArray
    """The lengths that were planned, with those of sequences that are in no row."""
    row_lengths: IntArray
    """Tokens in every row with its padding, [ranks, micro-steps]."""
    costs: FloatArray
    """The cost of every row, [ranks, micro-steps]."""
    ledger: Ledger
    """Sequences and tokens that came in, are in rows, or were dropped, and the padding."""

    def __post_init__(self) -> None:
        for array in (self.row_offsets, self.documents, self.starts, self.stops, self.lengths):
            array.setflags(write=False)
        self.row_lengths.setflags(write=False)
        self.costs.setflags(write=False)

    @property
    def num_ranks(self) -> int:
        """Ranks that share the step."""
        return self.options.num_ranks

    @property
    def max_length(self) -> int:
        """The most tokens in a row."""
        return self.options.max_length

    def row(self, rank: int, micro_step: int) -> IntArray:
        """The sequences that a rank packs into a micro-step; none for a dummy."""
        return self.documents[self.pieces(rank, micro_step)]

    def pieces(self, rank: int, micro_step: int) -> slice:
        """The place of a row in ``documents``, ``starts`` and ``stops``."""
        row = self.row_index(rank, micro_step)
        return slice(int(self.row_offsets[row]), int(self.row_offsets[row + 1]))

    @cached_property
    def dummies(self) -> IntArray:
        """``[rank, micro_step]`` of every row without sequences, whose tokens are all padding."""
        return np.argwhere(self.sequences_per_row == 0)

    @property
    def num_sequences(self) -> int:
        """Sequences in rows, on all ranks: the denominator of a mean over sequences."""
        return self.ledger.documents.emitted

    @property
    def num_tokens(self) -> int:
        """Tokens in rows, on all ranks, without padding: the denominator of a mean over tokens."""
        return self.ledger.tokens.emitted

    @cached_property
    def tokens_per_row(self) -> IntArray:
        """Tokens in every row, without padding, [ranks, micro-steps]."""
        return self._per_row(self.stops - self.starts)

    @cached_property
    def sequences_per_row(self) -> IntArray:
        """Sequences, or pieces of split ones, in every row, [ranks, micro-steps]."""
        return np.diff(self.row_offsets).reshape(self.num_ranks, self.num_micro_steps)

    @cached_property
    def permutation(self) -> IntArray:
        """The sequences in the order of rows: rank by rank, micro-step by micro-step."""
        return self.documents

    @cached_property
    def inverse(self) -> IntArray:
        """Where each sequence begins in ``permutation``; -1 for one that is in no row."""
        inverse = np.full(len(self.lengths), -1)
        opening = np.flatnonzero(self.starts == 0)
        inverse[self.documents[opening]] = opening
        return inverse

    @cached_property
    def cost_per_rank(self) -> FloatArray:
        """The cost of all rows of each rank."""
        costs: FloatArray = self.costs.sum(axis=1)
        return costs

    @property
    def imbalance(self) -> float:
        """The most expensive rank's cost over the mean, both summed over micro-steps; 1 is even."""
        mean = self.costs.mean(axis=0).sum()
        return float(self.costs.max(axis=0).sum() / mean) if mean else 1.0

    @property
    def utilization(self) -> float:
        """Tokens over the places of all rows at their budget."""
        return self.num_tokens / (self.row_lengths.size * self.max_length)

    def sequences(self, rank: int) -> IntArray:
        """The sequences on a rank, in increasing order."""
        return np.unique(self.rows_of(rank).documents)

    def cu_seqlens(self, rank: int, micro_step: int) -> IntArray:
        """Where the sequences of a row would begin and end without padding, from 0.

        These are the ``cu_seqlens`` of kernels for variable lengths.
        """
        piece = self.pieces(rank, micro_step)
        return _ends(self.stops[piece] - self.starts[piece])

    def cu_seqlens_padded(self, rank: int, micro_step: int) -> IntArray:
        """Where the sequences of a row begin and end with their padding.

        Padding at the end of the row has a place of its own.
        """
        spaces = self.spaces(rank, micro_step)
        rest = self.row_lengths[rank, micro_step] - spaces.sum()
        return _ends(np.append(spaces, rest) if rest else spaces)

    def position_ids(self, rank: int, micro_step: int) -> IntArray:
        """Positions of a row's tokens, from 0 in every sequence and in padding at the end."""
        ends = self.cu_seqlens_padded(rank, micro_step)
        return np.arange(ends[-1]) - np.repeat(ends[:-1], np.diff(ends))

    def segment_ids(self, rank: int, micro_step: int) -> IntArray:
        """1 to k for the tokens of a row's k sequences, 0 for padding."""
        piece = self.pieces(rank, micro_step)
        lengths, spaces = self.stops[piece] - self.starts[piece], self.spaces(rank, micro_step)
        counts = np.stack([lengths, spaces - lengths], axis=1).ravel()
        numbers = np.stack([np.arange(1, len(lengths) + 1), np.zeros_like(lengths)], axis=1).ravel()
        rest = int(self.row_lengths[rank, micro_step]) - int(spaces.sum())
        return np.repeat(np.append(numbers, 0), np.append(counts, rest))

    def gather(
        self,
        values: Any,  # noqa: ANN401 - arrays and tensors of any library
        rank: int | None = None,
        micro_step: int | None = None,
        *,
        pad: float = 0,
        per: Per | None = None,
    ) -> Any:  # noqa: ANN401
        """The values of a row, from values of all sequences.

        ``values`` has one value per token (all sequences one after another, a list of sequences, or
        a nested tensor) or one per sequence; a value may be a vector. ``per`` says which, for the
        rare case that both are possible. ``pad`` fills the padding of values per token. Without a
        micro-step: a list of the rank's rows; without a rank, of all ranks' rows.
        """
        source = read_values(values, self.lengths, per)
        if micro_step is None:
            rows = gather_rows(self.rows_of(rank), source, self.lengths, pad)
            if rank is not None:
                return rows
            steps = self.num_micro_steps
            return [rows[r * steps : (r + 1) * steps] for r in range(self.num_ranks)]
        if rank is None:
            raise InvalidOption(f"micro_step={micro_step} needs a rank; pass rank= as well")
        row = self.row_index(rank, micro_step)
        return gather_rows(RowRange(self, row, row + 1), source, self.lengths, pad)[0]

    def rows_of(self, rank: int | None) -> RowRange:
        """The rows of a rank, or of all."""
        if rank is not None:
            rank = _below("rank", rank, self.num_ranks)
        if rank not in self._ranges:
            first = 0 if rank is None else self.row_index(rank, 0)
            number = self.row_lengths.size if rank is None else self.num_micro_steps
            self._ranges[rank] = RowRange(self, first, first + number, every=rank is None)
        return self._ranges[rank]

    @cached_property
    def _ranges(self) -> dict[int | None, RowRange]:
        return {}

    def unpack(
        self,
        rows_of_values: Sequence[Any],
        rank: int | None = None,
        *,
        fill: float = 0,
        per: Per | None = None,
        layout: Layout = "flat",
    ) -> Any:  # noqa: ANN401
        """The values of all sequences in their order, from those of rows: the inverse of `gather`.

        ``rows_of_values`` has a list of rows for each rank; with ``rank`` it is the list of that
        rank's rows, and the result has its sequences only (see `sequences`), and of a split one
        only the pieces on that rank. Rows hold a value per token, padding included, or one per
        sequence. ``fill`` is the value of sequences that
        are in no row. Values per token are returned as one array (``flat``), as a ``list`` with an
        array per sequence, or as a ``jagged`` tensor. Gradients flow through.
        """
        return unpack_rows(self, rows_of_values, rank, fill=fill, per=per, layout=layout)

    def loss_weights(
        self,
        mean_over: Literal["tokens", "sequences"] = "tokens",
        mask: Any = None,  # noqa: ANN401 - arrays and tensors of any library
    ) -> FloatArray:
        """A weight per token: the sum of weight times loss over all rows of all ranks is the mean.

        Over ``tokens`` all tokens weigh the same; over ``sequences`` every sequence does, whatever
        its length. ``mask`` has a value per token in any form that `gather` takes, 0 for tokens
        without loss such as the prompt's. Gather the weights like any values per token. Where ranks
        average their gradients, multiply by ``num_ranks``.
        """
        return loss_weights(self, mean_over, mask)

    def row_index(self, rank: int, micro_step: int) -> int:
        """The number of a row, ``rank * num_micro_steps + micro_step``."""
        first = _below("rank", rank, self.num_ranks) * self.num_micro_steps
        return first + _below("micro_step", micro_step, self.num_micro_steps)

    def spaces(self, rank: int, micro_step: int) -> IntArray:
        """The places of a row's sequences with their padding (``align``)."""
        piece = self.pieces(rank, micro_step)
        spaces: IntArray = self.options.spaces(self.stops[piece] - self.starts[piece])
        return spaces

    def __repr__(self) -> str:
        parts = [
            f"StepPlan({counted(self.num_sequences, 'sequence')} with "
            f"{counted(self.num_tokens, 'token')} on {counted(self.num_ranks, 'rank')} x "
            f"{counted(self.num_micro_steps, 'micro-step')} (bound {self.lower_bound})",
            f"{self.utilization:.2%} full",
            f"imbalance {self.imbalance:.4f}",
        ]
        if len(self.dummies):
            parts.append(counted(len(self.dummies), "dummy row"))
        dropped = self.ledger.documents.dropped
        parts += [f"{count} dropped as {reason}" for reason, count in dropped.items()]
        return ", ".join(parts) + ")"

    def _per_row(self, values: IntArray) -> IntArray:
        sums = np.append(0, np.cumsum(values))[self.row_offsets]
        return np.diff(sums).reshape(self.num_ranks, self.num_micro_steps)


def _ends(lengths: IntArray) -> IntArray:
    """32 bits wide, as kernels want it, unless a row is too long for that."""
    ends = np.append(0, np.cumsum(lengths))
    return ends.astype(narrowest_signed(int(ends[-1])))


def _below(name: str, value: object, limit: int) -> int:
    number = require_integer(name, value, 0)
    if number >= limit:
        raise InvalidOption(f"{name} is {number} but this plan has {name}s 0 to {limit - 1}")
    return number
