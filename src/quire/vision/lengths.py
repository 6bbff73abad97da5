"""Sizes of all samples, if they are known before any sample is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from quire.errors import InvalidDocument, InvalidLengths, InvalidOption, unknown_name
from quire.plan.lengths import IntArray, Lengths, as_lengths
from quire.vision.samples import LENGTH_FIELDS, MEDIA, SampleReader
from quire.vision.source import has_random_access

KnownLengths: TypeAlias = "Lengths | Mapping[str, Lengths]"
"""Tokens of every sample, or a dict of ``tokens``, ``images`` and ``patches``."""


def known_sizes(dataset: Any, given: KnownLengths | None, reader: SampleReader) -> IntArray | None:  # noqa: ANN401
    """One row per sample and one column per measure; None if they are not known."""
    if given is not None:
        return _matched(dataset, _given_sizes(given, reader.names))
    if hasattr(dataset, "fused_sizes"):
        sizes: IntArray | None = dataset.fused_sizes(reader)
        return sizes
    if isinstance(dataset, list | tuple):
        return _sizes_in_memory(dataset, reader)
    names = getattr(dataset, "column_names", None)
    if reader.measure is None and has_random_access(dataset) and isinstance(names, Sequence):
        return _sizes_of_columns(dataset, names, reader)
    return None


def _sizes_of_columns(
    dataset: Any,  # noqa: ANN401
    names: Sequence[str],
    reader: SampleReader,
) -> IntArray | None:
    """Sizes from lengths and grids, if all images have grids; pixels are large and not read."""
    known = [name for name in LENGTH_FIELDS if name in names]
    if not known:
        return None
    if len(reader.names) == 1:
        return _matched(dataset, _given_sizes(dataset[known[0]], reader.names))
    grids = [f"{kind}_grid_thw" for kind, _ in MEDIA if f"{kind}_grid_thw" in names]
    without_grid = [p for kind, p in MEDIA if p in names and f"{kind}_grid_thw" not in names]
    if not grids or without_grid:
        return None
    columns = {name: dataset[name] for name in (known[0], *grids)}
    rows = zip(*columns.values(), strict=True)
    return _sizes_in_memory([dict(zip(columns, row, strict=True)) for row in rows], reader)


def _given_sizes(given: KnownLengths, names: tuple[str, ...]) -> IntArray:
    columns: Mapping[str, Any] = given if isinstance(given, Mapping) else {"tokens": given}
    for name in columns:
        if name not in ("tokens", "images", "patches"):
            raise unknown_name("key of lengths", name, ("tokens", "images", "patches"))
    for name in names:
        if name not in columns:
            budget = "packing_length" if name == "tokens" else f"packing_max_{name}"
            raise InvalidOption(
                f"lengths has no {name!r} but {budget} limits them; give "
                f"lengths={{'tokens': ..., {name!r}: ...}}, or omit lengths"
            )
    arrays = [as_lengths(_summed(columns[name])).astype(np.int64) for name in names]
    if len({len(array) for array in arrays}) > 1:
        counts = {name: len(array) for name, array in zip(names, arrays, strict=True)}
        raise InvalidLengths(f"lengths have different numbers of samples: {counts}")
    return np.column_stack(arrays)


def _summed(lengths: Any) -> Any:  # noqa: ANN401 - whatever `as_lengths` takes, or lists of parts
    """One length per sample: ms-swift lists the lengths of a sample's parts."""
    if not isinstance(lengths, Sequence):
        return lengths  # an array
    plain = list(lengths)  # a `datasets` column would read its rows one by one
    if not any(isinstance(parts, list | tuple) for parts in plain):
        return plain
    return [sum(parts) if isinstance(parts, list | tuple) else parts for parts in plain]


def _matched(dataset: Any, sizes: IntArray) -> IntArray:  # noqa: ANN401
    if has_random_access(dataset) and len(dataset) != len(sizes):
        raise InvalidLengths(
            f"there are {len(sizes)} lengths but {len(dataset)} samples; give one length for each"
        )
    return sizes


def _sizes_in_memory(samples: Sequence[Any], reader: SampleReader) -> IntArray | None:
    """Sizes of samples that all have a length; a malformed one is reported when it is read."""
    if not all(
        isinstance(sample, Mapping) and any(name in sample for name in LENGTH_FIELDS)
        for sample in samples
    ):
        return None
    try:
        rows = [reader.sizes(sample, check_fields=False) for sample in samples]
    except InvalidDocument:
        return None
    return np.array(rows, dtype=np.int64).reshape(len(samples), len(reader.names))
