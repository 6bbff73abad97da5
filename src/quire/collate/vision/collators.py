"""Collate vision-language packs into rows without padding, or samples into padded rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from quire.boundaries import Boundaries
from quire.collate.attention import ATTENTION, transformers_arguments, varlen_arguments
from quire.collate.rows import Feature, Ints, Layout, Rows
from quire.collate.special_tokens import SpecialTokens, pad_token_id
from quire.collate.tensors import Batch, Value, as_batch, require_return_tensors
from quire.collate.vision.mrope import MropeOptions, VisionModel, positions_of, resolve_mrope
from quire.collate.vision.samples import (
    Pack,
    VisionSamples,
    as_packs,
    as_rows,
    has_packs,
    read_samples,
)
from quire.errors import InvalidOption, InvalidRow, unknown_name
from quire.labels import LabelOptions

VisionBatch: TypeAlias = "dict[str, Value | list[object]]"


@dataclass(frozen=True)
class VisionPaddingFreeCollator:
    """Makes one row of each pack; ``model(**batch)`` keeps its samples isolated.

    One pack, or a list of samples, becomes one flat row `[1, N]`. Several packs become rows
    `[B, T]`, padded on the right to the longest one; padding is a segment of its own.

    `position_ids` are `(4, B, T)`: positions within the sample first, from which transformers
    detects samples (from three rows it detects none), then time, height and width. Patches and
    grids are concatenated; an unknown field becomes a list with one value per sample.

    >>> collator = VisionPaddingFreeCollator(return_tensors="np")
    >>> pack = [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]
    >>> batch = collator([pack])
    >>> batch["labels"], batch["cu_seq_lens_q"]
    (array([[-100,    6,    7, -100,    9]]), array([0, 3, 5], dtype=int32))
    >>> batch["position_ids"][:, 0].tolist()[0]
    [0, 1, 2, 0, 1]
    >>> collator([pack, [{"input_ids": [4, 4]}]])["input_ids"].tolist()
    [[5, 6, 7, 8, 9], [4, 4, 0, 0, 0]]
    """

    mrope: MropeOptions | None = None
    """The model's rules: ``MropeOptions.of_config(model.config)``. None: those of ``model``, or
    without one Qwen2-VL's."""
    _: KW_ONLY
    model: VisionModel | None = None
    """Computes positions with its own `get_rope_index`; without one they are computed here, with
    the same result."""
    attention: str = "transformers"
    """The backend whose mask is added: ``sdpa`` and ``eager`` get a dense one."""
    token_fields: tuple[str, ...] = ()
    """Additional sample fields with one value per token."""
    ignore_index: int = -100
    return_tensors: str = "pt"
    """``pt`` or ``np``."""

    def __post_init__(self) -> None:
        require_return_tensors(self.return_tensors)
        if self.attention not in ATTENTION:
            raise unknown_name("attention", self.attention, ATTENTION)
        if self.attention == "flex" and self.return_tensors == "np":
            raise InvalidOption("attention='flex' makes a torch BlockMask; use return_tensors='pt'")
        _ = self._label_options

    @cached_property
    def _label_options(self) -> LabelOptions:
        return LabelOptions(ignore_index=self.ignore_index)

    def __call__(self, features: Sequence[Feature | Pack]) -> VisionBatch:
        """The batch of these samples, which are not changed."""
        options = resolve_mrope(self.mrope, self.model)
        packs = as_rows(features)
        samples = read_samples(packs, options, self.token_fields)
        positions = positions_of(samples, options, self.model)
        ends = np.cumsum([0, *map(len, packs)]).tolist()
        boundaries = _pack_boundaries(ends, samples.rows.lengths)
        text, layout = boundaries.position_ids(), Layout.of(boundaries)
        axes = zip(*positions, strict=True)
        batch = _token_batch(samples.rows, samples.token_columns, layout, self._label_options)
        batch["position_ids"] = np.stack([text, *map(layout.place, axes)])
        batch["text_position_ids"] = text
        batch |= transformers_arguments(boundaries) | varlen_arguments(boundaries)
        batch |= ATTENTION[self.attention](boundaries)
        return _finished(batch, samples, self.return_tensors)


@dataclass(frozen=True)
class VisionPaddedCollator:
    """Makes `[B, T]` of samples, padded on the right, with an attention mask.

    `position_ids` are `(3, B, T)`, 0 on padding, as the model itself computes them.

    >>> collator = VisionPaddedCollator(return_tensors="np")
    >>> batch = collator([{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}])
    >>> batch["input_ids"].tolist(), batch["attention_mask"].tolist()
    ([[5, 6, 7], [8, 9, 0]], [[1, 1, 1], [1, 1, 0]])
    """

    tokenizer: SpecialTokens | None = None
    """Provides the PAD id; padding is known from lengths, so any id works."""
    mrope: MropeOptions | None = None
    """As in `VisionPaddingFreeCollator`."""
    _: KW_ONLY
    model: VisionModel | None = None
    token_fields: tuple[str, ...] = ()
    ignore_index: int = -100
    return_tensors: str = "pt"
    """``pt`` or ``np``."""

    def __post_init__(self) -> None:
        require_return_tensors(self.return_tensors)
        _ = self._label_options

    @cached_property
    def _label_options(self) -> LabelOptions:
        return LabelOptions(ignore_index=self.ignore_index)

    def __call__(self, features: Sequence[Feature]) -> VisionBatch:
        """The batch of these samples, which are not changed."""
        options = resolve_mrope(self.mrope, self.model)
        samples = read_samples([_without_packs(features)], options, self.token_fields)
        rows = samples.rows
        axes = zip(*positions_of(samples, options, self.model), strict=True)
        layout = Layout.of(Boundaries.of_rows([[0]] * len(rows.tokens), rows.lengths))
        pad = pad_token_id(self.tokenizer)
        batch = _token_batch(rows, samples.token_columns, layout, self._label_options, pad)
        batch["attention_mask"] = (layout.segment_ids > 0).astype(np.int64)
        batch["position_ids"] = np.stack([layout.place(axis) for axis in axes])
        batch["use_cache"] = False
        return _finished(batch, samples, self.return_tensors)


@dataclass(frozen=True)
class VisionCollator:
    """Uses one collator for packs and another for samples.

    A Trainer has one collator for training and evaluation: packed datasets yield lists of samples,
    other datasets yield samples.

    >>> collator = VisionCollator(
    ...     VisionPaddingFreeCollator(return_tensors="np"),
    ...     VisionPaddedCollator(return_tensors="np"),
    ... )
    >>> samples = [{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]
    >>> collator([samples])["input_ids"].shape, collator(samples)["input_ids"].shape
    ((1, 5), (2, 3))
    """

    packed: VisionPaddingFreeCollator
    padded: VisionPaddedCollator

    def __call__(self, features: Sequence[Feature | Pack]) -> VisionBatch:
        """The batch of these packs, or of these samples; empty if all packs are empty.

        Empty packs replace those that a resumed Trainer discards.
        """
        packs = as_packs(features)
        if packs and not any(packs):
            return {}
        return self.packed(features) if has_packs(features) else self.padded(features)  # type: ignore[arg-type]


def _pack_boundaries(ends: Sequence[int], lengths: Sequence[int]) -> Boundaries:
    """One row per pack: ``ends`` holds the first sample of each pack, then the last one's end."""
    rows = [lengths[first:end] for first, end in pairwise(ends)]
    starts = [np.cumsum([0, *row[:-1]]) for row in rows]
    return Boundaries.of_rows(starts, [sum(row) for row in rows])


def _token_batch(
    rows: Rows,
    columns: Mapping[str, Sequence[Ints]],
    layout: Layout,
    labels: LabelOptions,
    pad: int = 0,
) -> Batch:
    """Tokens, labels (as given, else the text tokens) and other columns with a value per token."""
    tokens = layout.place(rows.tokens, pad)
    return {
        "input_ids": tokens,
        "labels": layout.labels(rows, tokens, labels),
        **{name: layout.place(column) for name, column in columns.items()},
    }


def _finished(batch: Batch, samples: VisionSamples, return_tensors: str) -> VisionBatch:
    """The batch with patches, grids and unknown fields, as tensors or arrays."""
    arrays = batch | samples.vision
    for name in samples.others.keys() & arrays.keys():
        given = [index for index, value in enumerate(samples.others[name]) if value is not None]
        if given:
            raise InvalidRow(
                f"sample {given[0]} has {name}, but the collator computes it to keep samples "
                "isolated; leave it out"
            )
    others = {name: values for name, values in samples.others.items() if name not in arrays}
    if return_tensors == "np":
        arrays = {name: np.asarray(v) if hasattr(v, "numpy") else v for name, v in arrays.items()}
    return {**as_batch(arrays, return_tensors), **others}


def _without_packs(features: Sequence[Feature]) -> Sequence[Feature]:
    for index, feature in enumerate(features):
        if not isinstance(feature, Mapping):
            raise InvalidRow(
                f"feature {index} is a {type(feature).__name__}, not a sample; use "
                "VisionPaddingFreeCollator for packs"
            )
    return features
