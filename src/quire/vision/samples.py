"""Measure encoded samples and check that their fields agree; samples are never changed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument, InvalidOption
from quire.options import require_integer
from quire.plan.lengths import MOST_TOKENS
from quire.vision.source import raise_if_bad_sample

Sample: TypeAlias = Mapping[str, Any]
Measure: TypeAlias = Callable[[Any], Mapping[str, int]]
"""Returns how many ``tokens``, ``images`` or ``patches`` a sample has, or some of them."""

LENGTH_FIELDS = ("length", "lengths")
"""Fields with a sample's number of tokens; ms-swift's ``lengths`` lists those of its parts."""
MEDIA = (("image", "pixel_values"), ("video", "pixel_values_videos"))
"""Kinds, each with the field of its pixels; ``<kind>_grid_thw`` describes their layout."""
_MEDIA_FIELDS = (
    "image_grid_thw",
    "pixel_values",
    "video_grid_thw",
    "pixel_values_videos",
    "mm_token_type_ids",
)
"""A sample without any of these is only text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleReader:
    """Measures samples, and compares placeholder tokens with images if their ids are known."""

    names: tuple[str, ...] = ("tokens",)
    """What to measure, in this order."""
    measure: Measure | None = None
    image_token_id: int | None = None
    video_token_id: int | None = None
    merge_size: int = 2
    """One placeholder represents a square of ``merge_size`` × ``merge_size`` patches."""

    def sizes(self, sample: object, *, check_fields: bool = True) -> tuple[int, ...]:
        """The sizes of a sample; raises `InvalidDocument` if it is malformed."""
        mapping = require_mapping(sample)
        given = {} if self.measure is None else _own_measures(self.measure, sample)
        sizes = tuple([given[n] if n in given else MEASURES[n](mapping) for n in self.names])
        if check_fields:
            # The caller's own measure may count tokens that a model adds for images.
            self._check(mapping, trusts_length="tokens" in given)
        return sizes

    def _check(self, sample: Sample, *, trusts_length: bool) -> None:
        if sample.get("input_ids") is not None:
            _check_tokens(sample, trusts_length=trusts_length)
        no_ids = self.image_token_id is None and self.video_token_id is None
        if no_ids and all(sample.get(name) is None for name in _MEDIA_FIELDS):
            return  # only text, as most samples may be
        for kind, pixels in MEDIA:
            self._check_media(sample, kind, pixels)

    def _check_media(self, sample: Sample, kind: str, pixels: str) -> None:
        rows, patches = _num_rows(sample, pixels), _patches_of_grid(sample, f"{kind}_grid_thw")
        if patches is not None and rows is not None and rows != patches:
            raise InvalidDocument(
                f"has {rows} rows of {pixels} but {patches} patches in {kind}_grid_thw"
            )
        if patches is None and rows is not None:
            return  # without a grid, the number of placeholders is not known
        found, needed = self._placeholders(sample, kind), (patches or 0) // self.merge_size**2
        if found is not None and found != needed:
            raise InvalidDocument(
                f"has {found} {kind} placeholders in input_ids but its {kind}s need {needed}"
            )

    def _placeholders(self, sample: Sample, kind: str) -> int | None:
        """How many tokens are placeholders of this kind; None if that cannot be known."""
        token_id = self.image_token_id if kind == "image" else self.video_token_id
        if token_id is not None and sample.get("input_ids") is not None:
            return _count(sample, "input_ids", token_id)
        if sample.get("mm_token_type_ids") is not None:
            return _count(sample, "mm_token_type_ids", 1 if kind == "image" else 2)
        return None


def _check_tokens(sample: Sample, *, trusts_length: bool) -> None:
    num_ids = _flat_length("input_ids", sample["input_ids"])
    if sample.get("labels") is not None:
        labels = _flat_length("labels", sample["labels"])
        if num_ids != labels:
            raise InvalidDocument(f"has {num_ids} input_ids and {labels} labels")
    given = None if trusts_length else _given_length(sample)
    if given is not None and given != num_ids:
        raise InvalidDocument(f"has length {given} but {num_ids} input_ids")


def require_mapping(sample: object) -> Sample:
    """The sample, if it has named fields; otherwise an error."""
    if type(sample) is not dict and not isinstance(sample, Mapping) and not hasattr(sample, "keys"):
        raise InvalidDocument(f"is {type(sample).__name__} but must map names to values")
    return sample  # type: ignore[return-value]


def length_of(sample: Sample) -> int:
    """The ``length`` of a sample, or else the number of its ``input_ids``.

    >>> length_of({"input_ids": [5, 6, 7]}), length_of({"length": 4})
    (3, 4)
    >>> length_of({"lengths": [4, 2]})
    6
    """
    if (given := _given_length(sample)) is not None:
        return given
    if (ids := sample.get("input_ids")) is not None:
        return _flat_length("input_ids", ids)
    names = ", ".join(sorted(map(str, sample))) or "nothing"
    raise InvalidDocument(f"has neither length nor input_ids, only {names}")


def length_or_zero(sample: Any) -> int:  # noqa: ANN401 - possibly malformed
    """The length of a sample that may be malformed."""
    try:
        return length_of(sample)
    except (InvalidDocument, AttributeError):
        return 0


def _given_length(sample: Sample) -> int | None:
    """The field ``length``, or the sum of ms-swift's ``lengths``; None without either."""
    if sample.get("length") is not None:
        return _integer("length", sample["length"])
    parts = sample.get("lengths")
    if parts is None:
        return None
    return sum(_integer("lengths", part) for part in (parts if np.ndim(parts) else [parts]))


def count_images(sample: Sample) -> int:
    """Images and videos of a sample: rows of its grids, or else whole images in its pixels."""
    total = 0
    for kind, pixels in MEDIA:
        grids, rows = _num_rows(sample, f"{kind}_grid_thw"), _num_rows(sample, pixels)
        if grids is not None:
            total += grids
        elif rows and _array(sample, pixels).ndim > 2:
            total += rows
    return total


def count_patches(sample: Sample) -> int:
    """Vision patches of a sample: rows of its pixels, or else the product of its grids.

    >>> count_patches({"image_grid_thw": [[1, 4, 6], [1, 2, 2]]})
    28
    """
    total = 0
    for kind, pixels in MEDIA:
        rows = _num_rows(sample, pixels)
        total += rows if rows is not None else _patches_of_grid(sample, f"{kind}_grid_thw") or 0
    return total


MEASURES: dict[str, Callable[[Sample], int]] = {
    "tokens": length_of,
    "images": count_images,
    "patches": count_patches,
}


def _own_measures(measure: Measure, sample: object) -> dict[str, int]:
    """What the caller's function returns, if those are counts."""
    try:
        measures = measure(sample)
    except Exception as error:
        raise_if_bad_sample(error)  # it may have to open an image
        raise
    if not isinstance(measures, Mapping) or not set(measures) <= set(MEASURES):
        raise InvalidOption(
            f"measure returned {measures!r} but must map some of {', '.join(MEASURES)} to counts"
        )
    return {name: require_integer(f"measure: {name}", n, 0) for name, n in measures.items()}


def _patches_of_grid(sample: Sample, name: str) -> int | None:
    if sample.get(name) is None:
        return None
    array = _array(sample, name)
    if array.size == 0:
        return 0
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        raise InvalidDocument(f"has {name} of shape {array.shape} but must hold integers t, h, w")
    if array.min() < 0:
        raise InvalidDocument(f"has {name} with {array.min()} but t, h, w must not be negative")
    patches: int = sum(math.prod(grid) for grid in array.tolist())  # numpy's product would overflow
    if patches > MOST_TOKENS:
        raise InvalidDocument(f"has {name} of {patches} patches, more than is possible")
    return patches


def _count(sample: Sample, name: str, value: int) -> int:
    return int((_array(sample, name) == value).sum())


def _array(sample: Sample, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(sample[name])
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, or on a device
        raise InvalidDocument(f"has {name} that cannot be read: {error}") from error
    except Exception as error:
        raise_if_bad_sample(error)  # an image that is decoded only when accessed
        raise


def _num_rows(sample: Sample, name: str) -> int | None:
    """The length of a field; None if it is missing."""
    values = sample.get(name)
    return None if values is None else _length(name, values)


def _length(name: str, values: Any) -> int:  # noqa: ANN401 - list, array or tensor
    try:
        return len(values)
    except TypeError:
        raise InvalidDocument(f"has {name} {values!r:.60} but must be a list") from None


def _flat_length(name: str, values: Any) -> int:  # noqa: ANN401 - list, array or tensor
    shape = getattr(values, "shape", None)
    number = _length(name, values)
    if shape is None and number and isinstance(values[0], Sequence):
        shape = (number, len(values[0]))
    if shape is not None and len(shape) != 1:
        raise InvalidDocument(f"has {name} of shape {tuple(shape)} but must be one-dimensional")
    return number


def _integer(name: str, value: Any) -> int:  # noqa: ANN401 - int, numpy integer or tensor
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= MOST_TOKENS or isinstance(value, bool):
        raise InvalidDocument(f"has {name} {value!r} but must be an integer >= 0")
    return number


def token_id(template: object, name: str, given: int | None = None) -> int | None:
    """The id of a placeholder: as given, or from the template or its processor."""
    if given is not None:
        return require_integer(name, given, 0)
    for owner in (template, getattr(template, "processor", None)):
        found = getattr(owner, name, None)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return None


def merge_size(template: object) -> int:
    """Patches per side that one placeholder represents; 2, as in all Qwen-VL models so far."""
    processor = getattr(template, "processor", None)
    found = getattr(getattr(processor, "image_processor", None), "merge_size", None)
    return found if isinstance(found, int) and found > 0 else 2
