"""The rows of a batch: read from a dataset's dicts, checked once, and laid out as arrays."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.boundaries import (
    Boundaries,
    fitting_length,
    starts_from_lengths,
    starts_from_position_ids,
)
from quire.boundaries.checks import read_starts
from quire.errors import InvalidBoundaries, InvalidRow
from quire.labels import LabelOptions, causal_labels

Ints: TypeAlias = npt.NDArray[np.int64]
Feature: TypeAlias = Mapping[str, Any]

LOSS_MASKS = ("loss_mask", "assistant_masks", "completion_mask")
"""1 at tokens to train on, 0 elsewhere: our name, and those of transformers and TRL."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Per-token columns of every row, and where its documents start."""

    tokens: list[Ints]
    starts: list[npt.ArrayLike]
    labels: list[Ints] | None
    loss_mask: list[Ints] | None
    came_with_starts: bool
    """Whether any row did; the starts of the others were filled in."""

    @property
    def lengths(self) -> list[int]:
        """Tokens in each row."""
        return [len(row) for row in self.tokens]

    def cut(self, lengths: Sequence[int]) -> Rows:
        """The first tokens of each row, as many as `lengths` says; starts are cut by value."""

        def shorten(column: list[Ints]) -> list[Ints]:
            return [row[:length] for row, length in zip(column, lengths, strict=True)]

        starts = [np.asarray(row) for row in self.starts]
        return replace(
            self,
            tokens=shorten(self.tokens),
            starts=[row[row < length] for row, length in zip(starts, lengths, strict=True)],
            labels=None if self.labels is None else shorten(self.labels),
            loss_mask=None if self.loss_mask is None else shorten(self.loss_mask),
        )


def one_document(tokens: Ints) -> npt.ArrayLike:
    """The starts of a row that holds one document."""
    return [0]


def read_rows(
    features: Sequence[Feature], missing_starts: Callable[[Ints], npt.ArrayLike] = one_document
) -> Rows:
    """The rows of these features; `missing_starts` gives the starts of rows that have none.

    Errors name the row and the column.
    """
    count = len(features) if isinstance(features, Sized) else None
    if isinstance(features, Mapping) or not count:
        many = "" if count is None else f" of {count}"
        raise InvalidRow(
            f"a batch is a list of at least one row, not a {type(features).__name__}{many}; pass a "
            "list of dicts"
        )
    tokens = [_read_tokens(feature, row) for row, feature in enumerate(features)]
    _refuse_negative_ids(tokens)
    starts = [starts_of_row(feature, row) for row, feature in enumerate(features)]
    masks = {name: _read_everywhere(features, tokens, name) for name in LOSS_MASKS}
    given = {name: mask for name, mask in masks.items() if mask is not None}
    return Rows(
        tokens=tokens,
        starts=[
            missing_starts(ids) if own is None else own
            for own, ids in zip(starts, tokens, strict=True)
        ],
        labels=_read_everywhere(features, tokens, "labels"),
        loss_mask=_both(given) if given else None,
        came_with_starts=any(own is not None for own in starts),
    )


def fit(rows: Rows, max_length: int, multiple: int, *, truncation: bool) -> Rows:
    """The rows, cut to `max_length` tokens each; without ``truncation``, longer ones raise."""
    needed = num_places(rows, multiple)
    longest = int(np.argmax(needed))
    if needed[longest] <= max_length:
        return rows
    if not truncation:
        raise InvalidRow(
            f"row {longest} needs {needed[longest]} places but max_length is {max_length}; "
            "cut rows with truncation=True, or raise max_length"
        )
    _check_starts(rows)
    columns = zip(rows.starts, rows.lengths, strict=True)
    return rows.cut([fitting_length(starts, n, max_length, multiple) for starts, n in columns])


def num_places(rows: Rows, multiple: int) -> list[int]:
    """The length of each row once its fragments are padded to a multiple."""
    if multiple == 1:
        return rows.lengths
    _check_starts(rows)
    columns = zip(rows.starts, rows.lengths, strict=True)
    return [Boundaries.of_rows([starts], [n], multiple=multiple).size for starts, n in columns]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layout:
    """Where tokens are in a batch `[B, T]`, of which a row takes one array or several.

    >>> layout = Layout.of(Boundaries.of_rows([[0, 2], [0]], [3, 2]))
    >>> layout.place([np.array([5, 6, 7]), np.array([8, 9])], fill=0)
    array([[5, 6, 7],
           [8, 9, 0]])
    >>> layout.place([np.array([5, 6]), np.array([7]), np.array([8, 9])], fill=0)
    array([[5, 6, 7],
           [8, 9, 0]])
    """

    segment_ids: npt.NDArray[np.int32]
    is_dense: bool
    """Whether padding is only at the right ends of rows."""
    is_full: bool
    """Whether there is no padding."""

    @classmethod
    def of(cls, boundaries: Boundaries) -> Layout:
        """The layout of a batch with these boundaries."""
        return cls(
            segment_ids=boundaries.segment_ids(),
            is_dense=boundaries.is_dense,
            is_full=bool(boundaries.numbers.all()),
        )

    def place(self, rows: Sequence[Ints], fill: int = 0) -> Ints:
        """`[B, T]`: the values of all rows, in order, where tokens are; `fill` on padding."""
        if self.is_full:
            return np.concatenate(rows).reshape(self.segment_ids.shape)
        placed = np.full(self.segment_ids.shape, fill, dtype=np.result_type(*rows))
        if self.is_dense:  # copying whole rows takes a tenth of the time of scattering tokens
            self._copy(rows, placed.reshape(-1))
        else:
            placed[self.segment_ids > 0] = np.concatenate(rows)
        return placed

    def _copy(self, rows: Sequence[Ints], flat: Ints) -> None:
        """Copy the rows one after another; where the tokens of a row end, the next row begins."""
        segments, place = self.segment_ids.reshape(-1), 0
        width = self.segment_ids.shape[1]
        for row in rows:
            if not segments[place]:
                place += -place % width
            flat[place : place + len(row)] = row
            place += len(row)

    def labels(self, rows: Rows, tokens: Ints, options: LabelOptions) -> Ints:
        """The rows' own labels, or their placed tokens, masked by boundaries and loss mask."""
        return causal_labels(
            tokens if rows.labels is None else self.place(rows.labels),
            self.segment_ids,
            options,
            loss_mask=None if rows.loss_mask is None else self.place(rows.loss_mask),
        )


def _check_starts(rows: Rows) -> None:
    """Check starts before a cut could remove bad ones, so that errors name the right row."""
    read_starts(rows.starts, np.array(rows.lengths))


def _both(masks: Mapping[str, list[Ints]]) -> list[Ints]:
    """1 where every mask is 1; combining masks would lose weights, so those are refused."""
    for name, rows in masks.items() if len(masks) > 1 else ():
        for row, mask in enumerate(rows):
            if mask.min() < 0 or mask.max() > 1:
                raise InvalidRow(
                    f"row {row}: {name} has values other than 0 and 1, but it says "
                    "which tokens to train on; apply weights in the loss instead"
                )
    return [np.minimum.reduce(row) for row in zip(*masks.values(), strict=True)]


def _read_tokens(feature: Feature, row: int) -> Ints:
    if not isinstance(feature, Mapping) or feature.get("input_ids") is None:
        found = (
            sorted(map(str, feature)) if isinstance(feature, Mapping) else type(feature).__name__
        )
        raise InvalidRow(f"row {row} has no input_ids, only {found}; a row is a dict with them")
    tokens = read_column(feature, "input_ids", row)
    if len(tokens) == 0:
        raise InvalidRow(f"row {row} has no tokens; leave empty rows out")
    _refuse_padding(feature, row, len(tokens))
    return tokens


def _refuse_negative_ids(tokens: list[Ints]) -> None:
    if np.concatenate(tokens).min() >= 0:
        return
    row = next(row for row, ids in enumerate(tokens) if ids.min() < 0)
    place = int((tokens[row] < 0).argmax())
    raise InvalidRow(
        f"row {row}: input_ids[{place}] is {tokens[row][place]}, but token ids start at 0"
    )


def _refuse_padding(feature: Feature, row: int, num_tokens: int) -> None:
    """Padding is known only from lengths, so a row must not contain any."""
    if feature.get("attention_mask") is None:
        return
    mask = read_column(feature, "attention_mask", row)
    _require_as_long("attention_mask", len(mask), num_tokens, row)
    num_padding = int(np.count_nonzero(mask == 0))
    if num_padding:
        raise InvalidRow(
            f"row {row} is already padded: its attention_mask has {num_padding} zeros; "
            "pass rows without padding, the collator adds it"
        )


def _read_everywhere(
    features: Sequence[Feature], tokens: list[Ints], name: str
) -> list[Ints] | None:
    """A per-token column of all rows, or None if no row has it."""
    present = [feature.get(name) is not None for feature in features]
    if not any(present):
        return None
    if not all(present):
        raise InvalidRow(
            f"row {present.index(False)} has no {name}, but row {present.index(True)} has; "
            "give them to all rows of a batch or to none"
        )
    column = [read_column(feature, name, row) for row, feature in enumerate(features)]
    for row, (values, ids) in enumerate(zip(column, tokens, strict=True)):
        _require_as_long(name, len(values), len(ids), row)
    return column


def _require_as_long(name: str, length: int, num_tokens: int, row: int) -> None:
    if length != num_tokens:
        raise InvalidRow(
            f"row {row} has {length} {name} but {num_tokens} input_ids; give one value per token"
        )


def starts_of_row(feature: Feature, row: int) -> npt.ArrayLike | None:
    """The row's starts, or those that other packers express as lengths or positions.

    Ignoring these would mix documents that their packer kept apart.
    """
    starts: npt.ArrayLike | None = feature.get("document_starts")
    if starts is not None:
        return starts
    if feature.get("seq_lengths") is None:
        return _starts_from_positions(feature, row)
    lengths = read_column(feature, "seq_lengths", row)
    if lengths.sum() != len(feature["input_ids"]):
        raise InvalidRow(
            f"row {row}: seq_lengths sum to {lengths.sum()}, but the row has "
            f"{len(feature['input_ids'])} input_ids; pack it again"
        )
    try:
        return starts_from_lengths(lengths)
    except InvalidBoundaries as error:
        raise InvalidRow(f"row {row}: seq_lengths: {error}") from error


def _starts_from_positions(feature: Feature, row: int) -> npt.ArrayLike | None:
    if feature.get("position_ids") is None:
        return None
    positions, num_tokens = read_column(feature, "position_ids", row), len(feature["input_ids"])
    _require_as_long("position_ids", len(positions), num_tokens, row)
    try:
        return starts_from_position_ids(positions, num_tokens)
    except InvalidBoundaries as error:
        raise InvalidRow(f"row {row}: {error}; give document_starts instead") from error


def read_column(feature: Feature, name: str, row: int) -> Ints:
    """The integers of a per-token or per-fragment column of a row."""
    values = feature[name]
    try:
        # A third faster than numpy on lists, and as strict: it accepts only integers.
        read = np.frombuffer(array("q", values), np.int64) if type(values) is list else values
        column = np.asarray(read)
    except Exception as error:  # tensors on a device, ragged lists: every library has its own
        raise InvalidRow(f"row {row}: {name} cannot be read as integers: {error}") from error
    if column.ndim != 1 or column.dtype.kind not in "iub":
        raise InvalidRow(
            f"row {row}: {name} has dtype {column.dtype} and shape {column.shape}, but must be a "
            "flat list of integers"
        )
    return column.astype(np.int64, copy=False)
