"""Rows of a live batch: of a collator, of TRL's, of a stream, or of your own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidRow
from quire.view.rows import IGNORE, Ints, RowView

Flags: TypeAlias = npt.NDArray[np.bool_]
_BOUNDARIES = ("cu_seq_lens_q", "segment_ids", "text_position_ids", "position_ids", "seq_idx")
"""What tells the documents of a batch apart, the most reliable first."""


def batch_views(batch: Mapping[str, Any]) -> Iterator[RowView]:
    """The rows of a batch, without their padding.

    Padding is known from ``attention_mask`` or ``segment_ids``. In batches without either, it is
    what ends a row as a segment of its own, repeats one token and trains nothing.

    >>> from quire import ByteTokenizer
    >>> from quire.collate import DataCollatorForCausalLM
    >>> collate = DataCollatorForCausalLM(ByteTokenizer(), return_tensors="np")
    >>> rows = [{"input_ids": [5, 6, 7, 4], "document_starts": [0, 2]}, {"input_ids": [8, 9]}]
    >>> [(row.spans, row.trained.tolist(), row.padding) for row in batch_views(collate(rows))]
    [([(0, 2), (2, 4)], [False, True, False, True], 0), ([(0, 2)], [False, True], 2)]
    """
    if batch.get("input_ids") is None:
        names = ", ".join(map(str, batch))[:200]
        raise InvalidRow(f"the batch has {names} but no input_ids; pass what a collator returns")
    tokens = _array(batch["input_ids"])
    ids = _lines("input_ids", tokens, tokens.shape)
    labels = batch.get("labels")
    targets = None if labels is None else _lines("labels", _array(labels), tokens.shape)
    opens, here = _opening_tokens(batch, ids), _places_of_tokens(batch, tokens.shape)
    features = tuple(map(str, batch))
    for number, row in enumerate(ids):
        yield _view(
            number, row, _at(targets, number), _at(opens, number), _at(here, number), features
        )


def _at(lines: npt.NDArray[Any] | None, number: int) -> npt.NDArray[Any] | None:
    return None if lines is None else lines[number]


def _view(
    number: int,
    ids: Ints,
    labels: Ints | None,
    opens: Flags | None,
    here: Flags | None,
    features: tuple[str, ...],
) -> RowView:
    width = len(ids)
    trained, note = (np.ones(width, np.bool_), "") if labels is None else _trained(ids, labels)
    starts_here = np.zeros(width, np.bool_) if opens is None else opens
    if here is not None:
        ids, trained, starts_here = ids[here], trained[here], starts_here[here]
    starts = np.flatnonzero(starts_here | (np.arange(len(ids)) == 0))
    stop = len(ids)
    if here is None and labels is not None:
        starts, stop = _without_padding(starts, ids, trained)
    if labels is None:
        trained[starts] = False
    return RowView(
        number=number,
        input_ids=ids[:stop],
        starts=starts,
        features=features,
        trained=trained[:stop],
        has_starts=opens is not None,
        has_labels=labels is not None,
        padding=width - stop,
        note=note,
    )


def _trained(ids: Ints, labels: Ints) -> tuple[Flags, str]:
    """Which tokens are targets, whether the labels are shifted or not."""
    targets = labels != IGNORE
    if np.array_equal(labels[targets], ids[targets]):
        return targets, ""
    if np.array_equal(labels[:-1][targets[:-1]], ids[1:][targets[:-1]]):
        return np.append(False, targets[:-1]), ""
    differ = int((labels[targets] != ids[targets]).sum())
    return targets, (
        f"{differ:,} of {int(targets.sum()):,} labels are not the token at their place, nor the "
        "next one: the model is trained on other tokens than are shown"
    )


def _without_padding(starts: Ints, ids: Ints, trained: Flags) -> tuple[Ints, int]:
    """The starts without those of trailing segments of padding, and where tokens end."""
    stop = len(ids)
    while len(starts) > 1:
        last = slice(int(starts[-1]), stop)
        if trained[last].any() or (ids[last] != ids[-1]).any():
            break
        starts, stop = starts[:-1], last.start
    return starts, stop


def _opening_tokens(batch: Mapping[str, Any], ids: Ints) -> Flags | None:
    """Where documents start, for each row; None if the batch does not say."""
    name = next((name for name in _BOUNDARIES if batch.get(name) is not None), None)
    if name is None:
        return None
    array = _array(batch[name])
    if name == "cu_seq_lens_q":
        opens = np.zeros(ids.size, np.bool_)
        opens[array[array < ids.size]] = True
        return opens.reshape(ids.shape)
    if name == "position_ids" and array.ndim == 3 and len(array) in (3, 4):
        array = array[0]  # text positions; the others are those of mRoPE
    if array.shape[-1:] != ids.shape[-1:]:
        raise InvalidRow(f"{name} have shape {array.shape}, but input_ids have rows of {ids.shape}")
    lines = np.broadcast_to(array.reshape(-1, ids.shape[1]), ids.shape)
    steps = np.diff(lines, axis=1)
    changes = steps != 1 if "position" in name else steps != 0
    return np.pad(changes, ((0, 0), (1, 0)), constant_values=True)


def _places_of_tokens(batch: Mapping[str, Any], shape: tuple[int, ...]) -> Flags | None:
    """Where tokens are, for each row; None if the batch does not say."""
    for name in ("segment_ids", "attention_mask"):
        if batch.get(name) is not None and (given := _array(batch[name])).shape == shape:
            here: Flags = _lines(name, given, shape) != 0
            return here
    return None


def _array(values: Any) -> npt.NDArray[Any]:  # noqa: ANN401 - an array of any library
    """A NumPy array of a tensor on any device, a JAX array or a list."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        return np.atleast_1d(np.asarray(values))
    except ValueError as error:
        raise InvalidRow(
            f"the rows of the batch differ in length: {error}; pass rows as a list of dicts"
        ) from None


def _lines(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> Ints:
    if array.shape != shape or array.dtype.kind not in "iub":
        raise InvalidRow(
            f"{name} have dtype {array.dtype} and shape {array.shape}, but must be integers of "
            f"shape {shape}"
        )
    return array.reshape(-1, shape[-1]).astype(np.int64)
