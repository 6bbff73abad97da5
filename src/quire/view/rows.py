"""Packed rows to show, checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.boundaries import check_starts, segment_ids
from quire.collate.rows import LOSS_MASKS, read_column, starts_of_row
from quire.corpus.encoding import record_of
from quire.errors import InvalidBoundaries, InvalidOption, InvalidRow
from quire.labels import causal_labels

Ints = npt.NDArray[np.int64]
Decode = Callable[[list[int]], str]
IGNORE = -100


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a fragment comes from."""

    document: int
    """The document's id."""
    offset: int
    """The fragment's first token, counted from the start of its document."""
    file: str | None = None
    """The input file, if it is known, and the number of the record in it."""
    record: int | None = None
    answer: str = ""
    """Of a preference pair: 'chosen' or 'rejected'."""

    @property
    def is_continuation(self) -> bool:
        """Whether the document began in another fragment."""
        return self.offset > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """The inputs of a packed dataset, which the ids of its documents count."""

    files: tuple[str, ...] = ()
    record_kind: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RowView:
    """One packed row."""

    number: int
    input_ids: Ints
    starts: Ints
    features: tuple[str, ...]
    trained: npt.NDArray[np.bool_]
    """Which tokens are targets of the loss; the first of a fragment never is."""
    has_starts: bool = True
    """Whether the row has boundaries; without, it is shown as one document."""
    has_labels: bool = False
    """Whether the row came with labels or a loss mask; without, all tokens are targets."""
    sources: tuple[Source, ...] = ()
    """Of each fragment, if the row has them."""
    padding: int = 0
    """Places of a batch's row that hold no token."""
    note: str = ""
    """What is unusual about the row."""

    @property
    def lengths(self) -> Ints:
        """Tokens of each fragment."""
        return np.diff(self.starts, append=len(self.input_ids))

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and stop of each fragment."""
        return list(pairwise([*self.starts.tolist(), len(self.input_ids)]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows in order, with the decoder of their tokens, if that is known."""

    kind: str
    rows: Iterable[Mapping[str, Any] | RowView]
    decode: Decode | None = None
    num_rows: int | None = None
    max_length: int | None = None
    """The most tokens in a row, if that is known."""
    inputs: Inputs = Inputs()
    """The input files, if they are known."""

    def views(self, start: int = 0, count: int | None = None) -> Iterator[RowView]:
        """Rows from ``start`` on."""
        stop = None if count is None else start + count
        for number, row in islice(enumerate(self.rows), start, stop):
            yield row if isinstance(row, RowView) else row_view(number, row, self.inputs)


def row_view(number: int, row: Mapping[str, Any], inputs: Inputs = Inputs()) -> RowView:  # noqa: B008
    """The checked view of a row; ``inputs`` are what its sources count."""
    if not isinstance(row, Mapping):
        raise InvalidOption(
            f"row {number} is a {type(row).__name__} but a row maps names to lists; these are not "
            "packed rows"
        )
    if "input_ids" not in row:
        raise InvalidOption(
            f"row {number} has {', '.join(map(str, row))[:200]} but no input_ids: these are not "
            "packed rows; pack them first (quire pack), or name what was packed"
        )
    ids = _tokens(number, row["input_ids"])
    starts = _starts(number, row, len(ids))
    boundaries = np.zeros(1, np.int64) if starts is None else starts
    labels = _labels(number, row, ids)
    masks = _loss_masks(number, row, len(ids))
    return RowView(
        number=number,
        input_ids=ids,
        starts=boundaries,
        features=tuple(str(name) for name in row),
        trained=_targets(ids if labels is None else labels, boundaries, masks),
        has_starts=starts is not None,
        has_labels=labels is not None or masks is not None,
        sources=_sources(number, row, len(boundaries), inputs),
    )


def _tokens(number: int, given: Any) -> Ints:  # noqa: ANN401 - whatever a file holds
    """The tokens of a row, if they are a list of integers."""
    try:
        ids = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        ids = np.zeros(0, object)  # a ragged list
    if ids.ndim != 1 or not (ids.dtype.kind in "iu" or (isinstance(given, list) and not given)):
        raise InvalidOption(
            f"row {number}: input_ids are {given!r:.60} but must be a list of integers; "
            "these are not packed rows, or they are damaged"
        )
    return ids.astype(np.int64)


def _starts(number: int, row: Mapping[str, Any], length: int) -> Ints | None:
    """The starts, or those of TRL's seq_lengths or of position_ids; None without any."""
    if not length:
        return None
    given = starts_of_row(row, number)
    try:
        return None if given is None else check_starts(given, length)
    except InvalidBoundaries as error:
        # The check sees only this row, and calls it 0.
        message = str(error).replace("row 0", f"row {number}", 1)
        raise InvalidBoundaries(message) from None


def _labels(number: int, row: Mapping[str, Any], ids: Ints) -> Ints | None:
    return _per_token(number, row, "labels", len(ids))


def _loss_masks(number: int, row: Mapping[str, Any], length: int) -> npt.NDArray[np.bool_] | None:
    given = [_per_token(number, row, name, length) for name in LOSS_MASKS]
    masks = [mask != 0 for mask in given if mask is not None]
    return np.logical_and.reduce(masks) if masks else None


def _per_token(number: int, row: Mapping[str, Any], name: str, length: int) -> Ints | None:
    if row.get(name) is None:
        return None
    values = read_column(row, name, number)
    if len(values) != length:
        raise InvalidRow(
            f"row {number} has {len(values)} {name} but {length} input_ids; it is damaged, or not "
            "a packed row"
        )
    return values


def _targets(
    labels: Ints, starts: Ints, mask: npt.NDArray[np.bool_] | None
) -> npt.NDArray[np.bool_]:
    if not len(labels):
        return np.zeros(0, np.bool_)
    segments = segment_ids(starts, len(labels))
    targets: npt.NDArray[np.bool_] = causal_labels(labels, segments, loss_mask=mask) != IGNORE
    return targets


def _sources(
    number: int, row: Mapping[str, Any], num_fragments: int, inputs: Inputs
) -> tuple[Source, ...]:
    if row.get("document_ids") is None or row.get("document_offsets") is None:
        return ()
    documents = read_column(row, "document_ids", number).tolist()
    offsets = read_column(row, "document_offsets", number).tolist()
    if not len(documents) == len(offsets) == num_fragments:
        raise InvalidRow(
            f"row {number} has {num_fragments} fragments but {len(documents)} document_ids and "
            f"{len(offsets)} document_offsets; it is damaged: run quire verify"
        )
    return tuple(
        _source(document, offset, inputs)
        for document, offset in zip(documents, offsets, strict=True)
    )


def _source(document: int, offset: int, inputs: Inputs) -> Source:
    place, record, answer = record_of(document, inputs.record_kind)
    if not 0 <= place < len(inputs.files):
        return Source(document=document, offset=offset)
    file = inputs.files[place]
    return Source(document=document, offset=offset, file=file, record=record, answer=answer)
