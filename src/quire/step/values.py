"""Values of sequences to rows, and values of rows back to sequences: NumPy arrays and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from quire.errors import InvalidOption
from quire.plan.build import spans
from quire.plan.exchange import whole_sums
from quire.plan.lengths import IntArray
from quire.step.arrays import Array, as_array, full, joined, split, stacked, take

if TYPE_CHECKING:
    from quire.step.plan import StepPlan

Per: TypeAlias = Literal["token", "sequence"]
Layout: TypeAlias = Literal["flat", "list", "jagged"]

_MANY = 64
"""Pieces in a row from which on, if they are short, an index of tokens is faster than slices."""


@dataclass(frozen=True)
class Values:
    """Values of all sequences: one flat array with offsets, or a list with one array each."""

    flat: Array
    parts: Sequence[Array] | None
    offsets: IntArray
    per_token: bool


def read_values(values: Array, lengths: IntArray, per: Per | None) -> Values:
    """The values, and whether there is one per token or one per sequence."""
    offsets = np.append(0, np.cumsum(lengths))
    if per not in (None, "token", "sequence"):
        raise InvalidOption(f"per is {per!r} but must be token or sequence")
    if getattr(values, "is_nested", False):
        if _is_jagged(values):
            if per == "sequence":
                raise InvalidOption("a jagged tensor has values per token, not per='sequence'")
            return Values(_jagged_values(values, lengths), None, offsets, True)
        values = list(values.unbind())
    if isinstance(values, list | tuple):
        parts = None if per == "sequence" else _as_sequences(values, lengths)
        if parts is not None:
            # An empty list says nothing about the type of values.
            like = next((part for part in parts if len(part)), parts[0])
            return Values(like, parts, offsets, True)
        values = stacked(values)
    values = as_array(values)
    return Values(values, None, offsets, _is_per_token(values, lengths, per))


class RowRange:
    """Some consecutive rows of a plan, with what moving their values needs."""

    def __init__(self, plan: StepPlan, first: int, last: int, *, every: bool = False) -> None:
        self.pieces = slice(int(plan.row_offsets[first]), int(plan.row_offsets[last]))
        self.documents, self.starts = plan.documents[self.pieces], plan.starts[self.pieces]
        self.stops = plan.stops[self.pieces]
        self.lengths = self.stops - self.starts
        self.counts = np.diff(plan.row_offsets[first : last + 1])
        self.places = plan.row_lengths.ravel()[first:last]
        self.row_lengths: list[int] = self.places.tolist()
        self.padded = int(self.places.sum()) > int(self.lengths.sum())
        self.whole = bool((self.lengths == plan.lengths[self.documents]).all())
        """Whether no sequence is split."""
        spaces = plan.options.spaces(self.lengths)
        self.blocks = self._blocks(spaces) if self.padded else self.lengths
        self.by_sequence: IntArray = np.lexsort((self.starts, self.documents))
        """The pieces in the order of sequences."""
        self.sequences = np.arange(len(plan.lengths)) if every else np.unique(self.documents)
        """The sequences that these rows are unpacked to."""
        self.missing = np.setdiff1d(self.sequences, self.documents)
        """Those of them that are in no row."""
        self._planned = plan.lengths

    @cached_property
    def tokens(self) -> IntArray:
        """The tokens of each sequence that is unpacked: of a split one those in these rows."""
        if self.whole or len(self.missing):
            return self._planned[self.sequences]
        place = np.searchsorted(self.sequences, self.documents)
        return whole_sums(place, self.lengths, len(self.sequences))

    def _blocks(self, spaces: IntArray) -> IntArray:
        """Lengths of all blocks of the rows: each piece, its padding, and that of a row's end."""
        blocks = np.stack([self.lengths, spaces - self.lengths], axis=1).ravel()
        ends = np.cumsum(self.counts)
        used = np.append(0, np.cumsum(spaces))
        rest = self.places - (used[ends] - used[ends - self.counts])
        return np.insert(blocks, 2 * ends, rest)

    @cached_property
    def row_blocks(self) -> list[list[int]]:
        """The lengths of the blocks of each row."""
        number = self.counts * 2 + 1 if self.padded else self.counts
        ends = np.cumsum(number)
        blocks = self.blocks.tolist()
        edges = zip((ends - number).tolist(), ends.tolist(), strict=True)
        return [blocks[a:b] for a, b in edges]


def gather_rows(rows: RowRange, source: Values, lengths: IntArray, pad: float) -> list[Array]:
    """The values of each row."""
    if not source.per_token:
        return split(take(source.flat, rows.documents), rows.counts.tolist())
    if not rows.padded and len(rows.lengths) >= _MANY and _are_short(rows) and not source.parts:
        index = spans(source.offsets[rows.documents] + rows.starts, rows.lengths)
        return split(take(source.flat, index), rows.row_lengths)
    pieces = _pieces_of(rows, source, lengths)
    if rows.padded:
        pieces = _with_padding(pieces, rows, source.flat, pad)
    return split(joined(pieces), rows.row_lengths)


def _are_short(rows: RowRange) -> bool:
    return int(rows.lengths.sum()) < _MANY * len(rows.lengths)


def _pieces_of(rows: RowRange, source: Values, lengths: IntArray) -> list[Array]:
    """Views of the values of each piece."""
    documents = rows.documents.tolist()
    parts = source.parts
    if parts is None and rows.whole and 2 * len(documents) >= len(lengths):
        parts = split(source.flat, lengths.tolist())
    if parts is not None and rows.whole:
        return [parts[document] for document in documents]
    if parts is not None:
        edges = zip(documents, rows.starts.tolist(), rows.stops.tolist(), strict=True)
        return [parts[document][start:stop] for document, start, stop in edges]
    begins = source.offsets[rows.documents] + rows.starts
    ends = begins + rows.lengths
    return [source.flat[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]


def unpack_rows(
    plan: StepPlan,
    rows_of_values: Sequence[Any],
    rank: int | None,
    *,
    fill: float,
    per: Per | None,
    layout: Layout,
) -> Any:  # noqa: ANN401
    """The values of sequences, from those of all ranks' rows or of one rank's."""
    if layout not in ("flat", "list", "jagged"):
        raise InvalidOption(f"layout is {layout!r} but must be flat, list or jagged")
    part = plan.rows_of(rank)
    rows = _flat_rows(rows_of_values, plan, rank)
    if _rows_per_token(rows, part, plan.lengths, per):
        return _laid_out(plan, _in_order(part, rows), part, rows[0], fill, layout)
    return _per_sequence(joined(rows), part, fill)


def _is_jagged(values: Array) -> bool:
    return "jagged" in str(values.layout)


def _jagged_values(values: Array, lengths: IntArray) -> Array:
    ragged = [dimension for dimension, size in enumerate(values.shape) if not isinstance(size, int)]
    if ragged != [1]:
        raise InvalidOption(
            f"the jagged tensor is ragged in dimension {ragged[0]} but tokens are in dimension 1; "
            "transpose it"
        )
    if values.lengths() is not None:  # it has gaps between its sequences
        values = values.contiguous()
    offsets = values.offsets().cpu().numpy()
    if not np.array_equal(np.diff(offsets), lengths):
        raise InvalidOption(
            f"the jagged tensor has {len(offsets) - 1} sequences with {offsets[-1]} values but the "
            f"plan is for {len(lengths)} sequences with {lengths.sum()} tokens (or for the same "
            "in another order)"
        )
    return values.values()[int(offsets[0]) : int(offsets[-1])]


def _as_sequences(values: Sequence[Any], lengths: IntArray) -> list[Array] | None:
    """An array per sequence, each as long as planned; None if these are values of sequences."""
    parts = [as_array(value) for value in values]
    if len(parts) != len(lengths) or not parts or any(not part.shape for part in parts):
        return None
    for index, (part, length) in enumerate(zip(parts, lengths.tolist(), strict=True)):
        if len(part) != length:
            raise InvalidOption(
                f"sequence {index} has {len(part)} values but was planned with {length} tokens; "
                "for values per sequence that are vectors, say per='sequence'"
            )
    return parts


def _is_per_token(values: Array, lengths: IntArray, per: Per | None) -> bool:
    """Whether there is one value per token; an error if there is neither that nor one each."""
    number, total = len(lengths), int(lengths.sum())
    found = int(values.shape[0]) if len(values.shape) else -1
    fits = {"token": found == total, "sequence": found == number}
    if per is None and all(fits.values()) and (lengths != 1).any():
        raise InvalidOption(
            f"there are {number} sequences and as many tokens; say per='token' or per='sequence'"
        )
    if (per is None and not any(fits.values())) or (per is not None and not fits[per]):
        raise InvalidOption(
            f"values have shape {tuple(values.shape)} but the plan is for {total} tokens of "
            f"{number} sequences; pass one value for each token or each sequence"
        )
    return fits["token"] if per is None else per == "token"


def _flat_rows(rows: Sequence[Any], plan: StepPlan, rank: int | None) -> list[Array]:
    """The rows, in the order of ranks and micro-steps."""
    if not _is_list(rows):
        raise InvalidOption(f"rows_of_values is {rows!r} but must be a list of rows for each rank")
    if rank is None:
        if len(rows) != plan.num_ranks:
            raise InvalidOption(
                f"there are rows of {len(rows)} ranks but the plan has {plan.num_ranks}; pass a "
                "list of rows for each rank, or rank= for the rows of one"
            )
        by_rank = list(rows)
    else:
        by_rank = [rows]
    for number, part in enumerate(by_rank):
        named = number if rank is None else rank
        if not _is_list(part):
            raise InvalidOption(
                f"the rows of rank {named} are {part!r} but must be a list with a row for each "
                "micro-step"
            )
        if len(part) != plan.num_micro_steps:
            raise InvalidOption(
                f"rank {named} has {len(part)} rows but the plan has "
                f"{plan.num_micro_steps} micro-steps"
            )
    return [as_array(row) for part in by_rank for row in part]


def _is_list(rows: Any) -> bool:  # noqa: ANN401
    """Whether these are rows in an order, also those of an array or a tensor."""
    if isinstance(rows, str | bytes | Mapping):
        return False
    return len(rows.shape) > 0 if hasattr(rows, "shape") else hasattr(rows, "__len__")


def _rows_per_token(rows: list[Array], part: RowRange, lengths: IntArray, per: Per | None) -> bool:
    """Whether rows have one value per place; an error if they have neither that nor one each."""
    if per not in (None, "token", "sequence"):
        raise InvalidOption(f"per is {per!r} but must be token or sequence")
    places, counts = part.places, part.counts
    if per is None and np.array_equal(places, counts) and (lengths[part.sequences] != 1).any():
        raise InvalidOption(
            "every row has as many tokens as sequences; say per='token' or per='sequence'"
        )
    found = np.array([row.shape[0] if len(row.shape) else -1 for row in rows])
    if per != "sequence" and np.array_equal(found, places):
        return True
    if per != "token" and np.array_equal(found, counts):
        return False
    wrong = int(np.argmax((found != places) & (found != counts))) if per is None else 0
    has = f"has {found[wrong]} values" if found[wrong] >= 0 else "is a single value"
    raise InvalidOption(
        f"row {wrong} {has} but {places[wrong]} tokens (with padding) and "
        f"{counts[wrong]} sequences; each row must have one value for each token, or each row one "
        f"for each sequence{_without_batch_dimension(rows[wrong])}"
    )


def _without_batch_dimension(row: Array) -> str:
    """What to do about a row as models return it: a batch of one."""
    if len(row.shape) < 2 or row.shape[0] != 1:
        return ""
    return f"; its shape is {tuple(row.shape)}, so pass row[0]"


def _in_order(part: RowRange, rows: list[Array]) -> list[Array]:
    """The values of each piece, in the order of sequences."""
    every = 2 if part.padded else 1
    pieces: list[Array] = []
    for row, blocks in zip(rows, part.row_blocks, strict=True):
        # Of a piece, its padding, ..., and the padding at the end of the row: each piece.
        pieces += split(row, blocks)[: len(blocks) // every * every : every]
    return [pieces[index] for index in part.by_sequence.tolist()]


def _laid_out(
    plan: StepPlan,
    pieces: list[Array],
    part: RowRange,
    like: Array,
    fill: float,
    layout: Layout,
) -> Any:  # noqa: ANN401
    """The values of all sequences, those that are in no row filled in, in the layout asked for."""
    if len(part.missing):
        documents, missing = part.documents[part.by_sequence], part.missing
        absent = [full(like, int(plan.lengths[document]), fill, "fill") for document in missing]
        order = np.argsort(np.append(documents, missing), kind="stable")
        pieces = [*pieces, *absent]
        pieces = [pieces[index] for index in order.tolist()]
    flat = joined(pieces) if pieces else like[:0]
    if layout == "flat":
        return flat
    if layout == "list":
        return split(flat, part.tokens.tolist())
    if not hasattr(flat, "new_full"):
        raise InvalidOption("layout is 'jagged' but the rows are not torch tensors; use 'list'")
    import torch

    offsets = torch.as_tensor(np.append(0, np.cumsum(part.tokens)), device=flat.device)
    return torch.nested.nested_tensor_from_jagged(flat, offsets)


def _per_sequence(values: Array, part: RowRange, fill: float) -> Array:
    """One value per sequence, in the order of sequences."""
    documents, order = part.documents, part.by_sequence
    twice = np.flatnonzero(np.diff(documents[order]) == 0)
    if len(twice):
        raise InvalidOption(
            f"sequence {documents[order][twice[0]]} was split, so it has several values; unpack "
            "values per token, or plan without overlong='split'"
        )
    found = take(values, order)
    if not len(part.missing):
        return found
    result = full(values, len(part.sequences), fill, "fill")
    result[np.searchsorted(part.sequences, documents[order])] = found
    return result


def _with_padding(pieces: list[Array], rows: RowRange, like: Array, pad: float) -> list[Array]:
    """All blocks of the rows: the pieces and the padding."""
    padding = full(like, int(rows.blocks.max()), pad, "pad")
    blocks: list[Array] = []
    following = iter(pieces)
    for row in rows.row_blocks:
        for number, length in enumerate(row):
            if number % 2 == 0 and number + 1 < len(row):
                blocks.append(next(following))
            elif length:
                blocks.append(padding[:length])
    return blocks
