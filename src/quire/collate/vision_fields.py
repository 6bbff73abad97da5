"""Fields of samples, joined in the order of the samples."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.collate.rows import LOSS_MASKS, Feature
from quire.errors import InvalidRow

Array: TypeAlias = npt.NDArray[np.generic]

PIXELS = ("pixel_values", "pixel_values_videos")
GRIDS = ("image_grid_thw", "video_grid_thw")
VISION_FIELDS = (*PIXELS, *GRIDS, "second_per_grid_ts")
"""Laid end to end: patches, grids, and seconds."""
TOKEN_FIELDS = ("input_ids", "labels", "attention_mask", "mm_token_type_ids", *LOSS_MASKS)
"""Read from samples and made anew for the batch."""


def join(samples: Iterable[Feature], name: str) -> object:
    """The values of all samples that have any, one after another; None if no sample has.

    Tensors stay tensors and keep their dtype; lists of floats become 32 bits wide, as images are.

    >>> join([{"image_grid_thw": [[1, 4, 6]]}, {}, {"image_grid_thw": [[1, 2, 2]]}],
    ...      "image_grid_thw").tolist()
    [[1, 4, 6], [1, 2, 2]]
    """
    given = (sample[name] for sample in samples if sample.get(name) is not None)
    values = [value for value in given if len(value)]  # of no image, lists have no width either
    if not values:
        return None
    torch = sys.modules.get("torch")  # a tensor cannot exist before its library is loaded
    try:
        if torch is not None and any(isinstance(value, torch.Tensor) for value in values):
            return torch.cat([torch.as_tensor(value) for value in values])
        return np.concatenate([as_array(value) for value in values])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRow(
            f"the {name} of {len(values)} samples do not fit together: {error}; encode all samples "
            "with one processor"
        ) from error


def as_array(values: object) -> Array:
    """The values on the host; what has no width of its own gets 32 bits if it is not whole."""
    array = np.asarray(values)
    is_plain = not hasattr(values, "dtype")
    return array.astype(np.float32) if is_plain and array.dtype.kind == "f" else array


def gather_others(samples: Sequence[Feature], taken: Iterable[str]) -> dict[str, list[object]]:
    """Every other field as a list of one value for each sample, None where it has none.

    >>> gather_others([{"input_ids": [1], "channel": "a"}, {"input_ids": [2]}], ["input_ids"])
    {'channel': ['a', None]}
    """
    known = {*taken, *VISION_FIELDS, *TOKEN_FIELDS}
    names = dict.fromkeys(name for sample in samples for name in sample if name not in known)
    return {name: [sample.get(name) for sample in samples] for name in names}


def token_column(sample: Feature, name: str, index: int) -> Array:
    """A field of one value for each token of the sample, or an error that names the sample."""
    try:
        column = as_array(sample[name])
    except Exception as error:  # ragged lists, tensors on a device: each library has its own kind
        raise InvalidRow(f"sample {index}: {name} cannot be read: {error}") from error
    num_tokens = len(sample["input_ids"])
    if column.shape != (num_tokens,):
        raise InvalidRow(
            f"sample {index} has {name} of shape {column.shape} but {num_tokens} input_ids; "
            "give one value for each token"
        )
    return column


def grid_of(sample: Feature, name: str, index: int) -> npt.NDArray[np.int64]:
    """`[n, 3]`: the grids of a sample's images or videos, none if it has none."""
    if sample.get(name) is None:
        return np.empty((0, 3), dtype=np.int64)
    try:
        grid = np.asarray(sample[name])
    except Exception as error:  # ragged lists, tensors on a device: each library has its own kind
        raise InvalidRow(f"sample {index}: {name} cannot be read: {error}") from error
    if grid.size == 0:
        return np.empty((0, 3), dtype=np.int64)
    if grid.ndim != 2 or grid.shape[1] != 3 or grid.dtype.kind not in "iu" or grid.min() < 1:
        raise InvalidRow(
            f"sample {index}: {name} have shape {grid.shape} and dtype {grid.dtype}, but are rows "
            "of time, height and width, all positive; give what the processor returns"
        )
    return grid.astype(np.int64, copy=False)
