"""Vision-language packs as rows: samples laid end to end, each with positions of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from quire.boundaries import Boundaries
from quire.collate.attention import ATTENTION, transformers_arguments, varlen_arguments
from quire.collate.layout import place
from quire.collate.rows import Feature, Ints
from quire.collate.tensors import Batch, Value, as_batch, require_return_tensors
from quire.collate.vision_mrope import MropeOptions
from quire.collate.vision_positions import VisionModel, positions_of
from quire.collate.vision_samples import Pack, VisionSamples, as_rows, read_samples
from quire.errors import InvalidOption, InvalidRow, unknown_name
from quire.labels import LabelOptions, causal_labels

VisionBatch: TypeAlias = "dict[str, Value | list[object]]"


@dataclass(frozen=True)
class VisionPaddingFreeCollator:
    """Makes one row of each pack, isolated as ``model(**batch)``.

    One pack, or a list of samples, becomes one flat row `[1, N]`. Several packs become rows
    `[B, T]`, padded at their right ends to the longest one; padding is a segment of its own.

    `position_ids` are `(4, B, T)`: positions in the sample first, in which transformers finds the
    samples (of three rows it finds none), then time, height and width. Patches and grids are laid
    end to end; a field that is not known becomes a list of one value for each sample.

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
    """What the model's config says: ``MropeOptions.of_config(model.config)``. None: the model is
    asked, and without one Qwen2-VL's rules hold."""
    _: KW_ONLY
    model: VisionModel | None = None
    """Asked for positions by its own `get_rope_index`; without one they are made here, alike."""
    attention: str = "transformers"
    """The backend whose form of mask is added: ``sdpa`` and ``eager`` get a dense one."""
    token_fields: tuple[str, ...] = ()
    """Fields of samples, besides the known ones, that hold one value for each token."""
    ignore_index: int = -100
    return_tensors: str = "pt"
    """``pt`` or ``np``."""

    def __post_init__(self) -> None:
        require_return_tensors(self.return_tensors)
        if self.attention not in ATTENTION:
            raise unknown_name("attention", self.attention, ATTENTION)
        if self.attention == "flex" and self.return_tensors == "np":
            raise InvalidOption("attention='flex' makes a torch BlockMask; use return_tensors='pt'")

    def __call__(self, features: Sequence[Feature | Pack]) -> VisionBatch:
        """The batch of these samples, which stay as they were."""
        options = rules(self.mrope, self.model)
        packs = as_rows(features)
        samples = read_samples(packs, options, self.token_fields)
        rows = _PackRows.of([len(pack) for pack in packs], samples.rows.lengths)
        boundaries = rows.boundaries
        axes = zip(*positions_of(samples, options, self.model), strict=True)
        text = boundaries.position_ids()
        batch: Batch = {
            "input_ids": rows.place(samples.rows.tokens),
            "labels": labels_of(samples, boundaries, rows.place, self.ignore_index),
            "position_ids": np.stack([text, *(rows.place(axis) for axis in axes)]),
            "text_position_ids": text,
            "mm_token_type_ids": rows.place(samples.token_types),
            **{name: rows.place(column) for name, column in samples.token_columns.items()},
        }
        batch |= transformers_arguments(boundaries) | varlen_arguments(boundaries)
        batch |= ATTENTION[self.attention](boundaries)
        return finished(batch, samples, self.return_tensors)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _PackRows:
    """Which samples make up which row."""

    boundaries: Boundaries
    ends: list[int]
    """The first sample of each row, then the number of samples."""

    @classmethod
    def of(cls, counts: Sequence[int], lengths: Sequence[int]) -> _PackRows:
        ends = np.cumsum([0, *counts]).tolist()
        rows = [lengths[first:end] for first, end in pairwise(ends)]
        starts = [np.cumsum([0, *row[:-1]]) for row in rows]
        return cls(boundaries=Boundaries.of_rows(starts, [sum(row) for row in rows]), ends=ends)

    def place(self, columns: Sequence[Ints]) -> Ints:
        """`[B, T]`: the values of each row's samples, in order; 0 on padding."""
        rows = [np.concatenate(columns[first:end]) for first, end in pairwise(self.ends)]
        return place(rows, self.boundaries, 0, np.result_type(*rows))


def rules(mrope: MropeOptions | None, model: VisionModel | None) -> MropeOptions:
    """The options as given, else the model's, else Qwen2-VL's."""
    if mrope is not None:
        return mrope
    return MropeOptions() if model is None else MropeOptions.of_config(model.config)


def labels_of(
    samples: VisionSamples,
    boundaries: Boundaries,
    placed: Callable[[list[Ints]], Ints],
    ignore_index: int,
) -> Ints:
    """Labels as given, else the tokens of text; the first of every sample is no target."""
    rows, mask = samples.rows, samples.loss_mask
    return causal_labels(
        placed(rows.tokens if rows.labels is None else rows.labels),
        boundaries.segment_ids(),
        LabelOptions(ignore_index=ignore_index),
        loss_mask=None if mask is None else placed(mask),
    )


def finished(batch: Batch, samples: VisionSamples, return_tensors: str) -> VisionBatch:
    """The batch with patches, grids and the fields that are not known, as what was asked for."""
    arrays = batch | samples.vision
    others = _without_own(samples.others, arrays)
    if return_tensors == "np":
        arrays = {name: np.asarray(v) if hasattr(v, "numpy") else v for name, v in arrays.items()}
    return {**as_batch(arrays, return_tensors), **others}


def _without_own(others: dict[str, list[object]], made: Batch) -> dict[str, list[object]]:
    """The fields of samples, none of which takes the place of what keeps samples apart."""
    for name in others.keys() & made.keys():
        given = [index for index, value in enumerate(others[name]) if value is not None]
        if given:
            raise InvalidRow(
                f"sample {given[0]} brings {name}, but the collator makes them, so that samples "
                "stay apart; leave them out"
            )
    return {name: values for name, values in others.items() if name not in made}
