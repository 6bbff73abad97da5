"""Read and check encoded vision-language samples once: tokens, images and all other fields."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.collate.rows import LOSS_MASKS, Feature, Ints, Rows, read_rows
from quire.collate.tensors import Batch
from quire.collate.vision.mrope import IMAGE, KINDS, TEXT, VIDEO, Grids, MropeOptions
from quire.errors import InvalidRow

Array: TypeAlias = npt.NDArray[np.generic]
Pack: TypeAlias = Sequence[Feature]

_PIXELS = ("pixel_values", "pixel_values_videos")
_GRIDS = ("image_grid_thw", "video_grid_thw")
_VISION_FIELDS = (*_PIXELS, *_GRIDS, "second_per_grid_ts")
"""Concatenated in the batch."""
_ROW_FIELDS = ("input_ids", "labels", "attention_mask", *LOSS_MASKS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VisionSamples:
    """The samples of a batch, in order."""

    rows: Rows
    """Tokens, labels and loss masks of every sample; without labels, placeholders are masked."""
    token_types: list[Ints]
    """0 for text, 1 for image placeholders, 2 for video placeholders."""
    grids: list[Grids]
    vision: Batch
    """Patches and grids of all samples, concatenated."""
    token_columns: dict[str, list[Ints]]
    """Token types and other fields with one value per token."""
    others: dict[str, list[object]]
    """Fields with one value per sample."""


def read_samples(
    packs: Iterable[Pack],
    options: MropeOptions,
    token_fields: Sequence[str] = (),
) -> VisionSamples:
    """The samples of these packs; errors name a sample by its index among all of them."""
    samples = [sample for pack in packs for sample in pack]
    rows = read_rows([_row_fields(sample, index) for index, sample in enumerate(samples)])
    types = [_token_types(sample, index, options) for index, sample in enumerate(samples)]
    grids = [_grids(sample, index) for index, sample in enumerate(samples)]
    _require_seconds(samples, grids)
    joined = {name: _join(samples, name) for name in _VISION_FIELDS}
    columns: dict[str, list[Any]] = {"mm_token_type_ids": types}
    for name in token_fields:
        if any(name in sample for sample in samples):
            columns[name] = [_token_column(sample, name, i) for i, sample in enumerate(samples)]
    return VisionSamples(
        rows=rows if rows.labels is not None else _without_placeholders(rows, types),
        token_types=types,
        grids=grids,
        vision={name: values for name, values in joined.items() if values is not None},  # type: ignore[misc]
        token_columns=columns,
        others=_other_fields(samples, token_fields),
    )


def as_rows(features: Sequence[Feature | Pack]) -> list[Pack]:
    """The samples of each row: those of a pack, or all of them if features are samples."""
    packs = as_packs(features)
    if not has_packs(features):
        return [[sample for pack in packs for sample in pack]]
    for number, pack in enumerate(packs):
        if not pack:
            raise InvalidRow(f"pack {number} has no samples; leave it out of the batch")
    return packs


def has_packs(features: Sequence[Feature | Pack]) -> bool:
    """Whether these are packs and not samples; an error if they are mixed."""
    are_samples = [isinstance(feature, Mapping) for feature in features]
    if any(are_samples) and not all(are_samples):
        raise InvalidRow(
            f"feature {are_samples.index(False)} is a pack and feature "
            f"{are_samples.index(True)} is a sample; a batch holds either packs or samples"
        )
    return not all(are_samples)


def as_packs(features: Sequence[Feature | Pack]) -> list[Sequence[Feature]]:
    """The packs of a batch; a single sample is a pack of one."""
    if isinstance(features, Mapping):
        raise InvalidRow("a batch is a list of samples or packs, not one sample; put it in a list")
    if not isinstance(features, Iterable):
        raise InvalidRow(f"a batch is a list of samples or packs, not {features!r}")
    return [_as_pack(feature, index) for index, feature in enumerate(features)]


def _as_pack(feature: object, index: int) -> Sequence[Feature]:
    if isinstance(feature, Mapping):
        return [feature]
    if isinstance(feature, Sequence) and not isinstance(feature, str):
        return feature
    raise InvalidRow(
        f"feature {index} is a {type(feature).__name__}; a feature is a sample (a dict) or a pack "
        "(a list of samples)"
    )


def _row_fields(sample: Feature, index: int) -> Feature:
    """The fields of a sample that any row of text has."""
    if not isinstance(sample, Mapping):
        raise InvalidRow(f"sample {index} is a {type(sample).__name__}; a sample is a dict")
    if sample.get("position_ids") is not None:
        raise InvalidRow(
            f"sample {index} has position_ids, but the collator computes them to keep samples "
            "isolated; leave them out"
        )
    for name in ("document_starts", "seq_lengths"):
        if sample.get(name) is not None and len(sample[name]) > 1:
            raise InvalidRow(
                f"sample {index} holds {len(sample[name])} documents according to its {name}, but "
                "a sample is one document; pass a pack as a list of samples, and rows of only text "
                "to PaddingFreeCollator or DataCollatorForCausalLM"
            )
    return {name: sample[name] for name in _ROW_FIELDS if name in sample}


def _without_placeholders(rows: Rows, token_types: Sequence[Ints]) -> Rows:
    """The rows with a loss mask that excludes the placeholders of images and videos."""
    masks = [(types == TEXT).astype(np.int64) for types in token_types]
    if rows.loss_mask is not None:
        masks = [np.minimum(*both) for both in zip(masks, rows.loss_mask, strict=True)]
    return replace(rows, loss_mask=masks)


def _token_types(sample: Feature, index: int, options: MropeOptions) -> Ints:
    """As given, else from the placeholders' ids; if both are known they must agree."""
    ids = np.asarray(sample["input_ids"])
    known = {IMAGE: options.image_token_id, VIDEO: options.video_token_id}
    found = np.zeros(len(ids), dtype=np.int64)
    for kind, token_id in known.items():
        if token_id is not None:
            found[ids == token_id] = kind
    if sample.get("mm_token_type_ids") is None:
        _require_token_ids(sample, index, known)
        return found
    given = _token_column(sample, "mm_token_type_ids", index)
    if given.dtype.kind not in "iub":
        raise InvalidRow(
            f"sample {index}: mm_token_type_ids have dtype {given.dtype} but must be integers; use "
            "those of the processor"
        )
    types = given.astype(np.int64)
    for kind, token_id in known.items():
        if token_id is not None and not np.array_equal(types == kind, found == kind):
            first = int(np.argmax((types == kind) != (found == kind)))
            raise InvalidRow(
                f"sample {index}: mm_token_type_ids[{first}] is {types[first]} but input_ids"
                f"[{first}] is {ids[first]}, and {token_id} is the {KINDS[kind]} placeholder; "
                "take both from one processor"
            )
    if not np.isin(types, (TEXT, *KINDS)).all():
        raise InvalidRow(
            f"sample {index}: mm_token_type_ids contain {types.max()}, but only 0 (text), 1 "
            "(image) and 2 (video) are known"
        )
    return types


def _require_token_ids(sample: Feature, index: int, known: Mapping[int, int | None]) -> None:
    for name, (kind, token_id) in zip(_GRIDS, known.items(), strict=True):
        if sample.get(name) is not None and token_id is None:
            raise InvalidRow(
                f"sample {index} has {name} but no mm_token_type_ids, and no "
                f"{KINDS[kind]}_token_id is known; give the collator mrope="
                "MropeOptions.of_config(model.config)"
            )


def _grids(sample: Feature, index: int) -> Grids:
    """The sample's grids, if patches and grids describe the same images."""
    image, video = (_grid(sample, name, index) for name in _GRIDS)
    for name, grid, pixels in zip(_GRIDS, (image, video), _PIXELS, strict=True):
        given = _count(sample, pixels, index)
        described = sum(map(math.prod, grid.tolist()))  # numpy's product would overflow
        if given != described:
            raise InvalidRow(
                f"sample {index}: {pixels} have {given} patches but {name} describes {described}; "
                "give both as the processor returns them"
            )
    seconds = sample.get("second_per_grid_ts")
    if seconds is not None and (found := _count(sample, "second_per_grid_ts", index)) != len(video):
        raise InvalidRow(
            f"sample {index} has {found} second_per_grid_ts but {len(video)} videos; give "
            "one for each"
        )
    as_floats = None if seconds is None else np.asarray(seconds, dtype=np.float32)
    return Grids(image=image, video=video, seconds=as_floats)


def _grid(sample: Feature, name: str, index: int) -> npt.NDArray[np.int64]:
    """`[n, 3]`: the grids of a sample's images or videos."""
    grid = np.empty((0, 3), np.int64) if sample.get(name) is None else _read(sample, name, index)
    if grid.size == 0:
        return np.empty((0, 3), dtype=np.int64)
    if grid.ndim != 2 or grid.shape[1] != 3 or grid.dtype.kind not in "iu" or grid.min() < 1:
        raise InvalidRow(
            f"sample {index}: {name} has shape {grid.shape} and dtype {grid.dtype}, but must hold "
            "rows of positive time, height and width; use what the processor returns"
        )
    return grid.astype(np.int64, copy=False)


def _count(sample: Feature, name: str, index: int) -> int:
    """The length of a field; 0 if it is missing."""
    values = sample.get(name)
    try:
        return 0 if values is None else len(values)
    except TypeError:
        raise InvalidRow(
            f"sample {index}: {name} is {values!r:.60}, a single value, but must be a list; use "
            "what the processor returns"
        ) from None


def _require_seconds(samples: Sequence[Feature], grids: Sequence[Grids]) -> None:
    """Raise unless all or none have them: concatenated, they would be taken for another's."""
    with_videos = [index for index, grid in enumerate(grids) if len(grid.video)]
    given = [samples[index].get("second_per_grid_ts") is not None for index in with_videos]
    if any(given) and not all(given):
        without, having = with_videos[given.index(False)], with_videos[given.index(True)]
        raise InvalidRow(
            f"sample {without} has videos but no second_per_grid_ts, and sample {having} has them; "
            "give them to all samples with videos or to none"
        )


def _join(samples: Iterable[Feature], name: str) -> object:
    """The values of all samples that have any, concatenated; None if no sample has any.

    Tensors stay tensors and keep their dtype; lists of floats become float32, as images are.
    """
    given = (sample[name] for sample in samples if sample.get(name) is not None)
    values = [value for value in given if len(value)]  # empty lists have no width
    if not values:
        return None
    torch = sys.modules.get("torch")  # a tensor cannot exist before its library is loaded
    try:
        if torch is not None and any(isinstance(value, torch.Tensor) for value in values):
            return torch.cat([torch.as_tensor(value) for value in values])
        return np.concatenate([_as_array(value) for value in values])
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRow(
            f"the {name} of {len(values)} samples do not fit together: {error}; encode all samples "
            "with one processor"
        ) from error


def _other_fields(samples: Sequence[Feature], taken: Iterable[str]) -> dict[str, list[object]]:
    """Every other field as a list with one value per sample, None where it is missing."""
    known = {*taken, *_VISION_FIELDS, *_ROW_FIELDS, "mm_token_type_ids"}
    names = dict.fromkeys(name for sample in samples for name in sample if name not in known)
    return {name: [sample.get(name) for sample in samples] for name in names}


def _token_column(sample: Feature, name: str, index: int) -> Array:
    """A field with one value per token of the sample; otherwise an error."""
    column = _read(sample, name, index)
    num_tokens = len(sample["input_ids"])
    if column.shape != (num_tokens,):
        raise InvalidRow(
            f"sample {index} has {name} of shape {column.shape} but {num_tokens} input_ids; "
            "give one value for each token"
        )
    return column


def _read(sample: Feature, name: str, index: int) -> Array:
    try:
        return _as_array(sample[name])
    except Exception as error:  # ragged lists, tensors on a device: libraries raise various errors
        raise InvalidRow(f"sample {index}: {name} cannot be read: {error}") from error


def _as_array(values: object) -> Array:
    """The values as an array on the host; float32 if they are floats without a dtype."""
    array = np.asarray(values)
    is_plain = not hasattr(values, "dtype")
    return array.astype(np.float32) if is_plain and array.dtype.kind == "f" else array
