"""Vision-language samples laid end to end as one row, each with positions of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

import numpy as np

from quire.boundaries import Boundaries
from quire.collate.attention import ATTENTION, transformers_arguments, varlen_arguments
from quire.collate.rows import Feature, Ints
from quire.collate.tensors import Batch, Value, as_batch, require_return_tensors
from quire.collate.vision_mrope import MropeOptions
from quire.collate.vision_positions import VisionModel, positions_of
from quire.collate.vision_samples import Pack, VisionSamples, read_samples
from quire.errors import InvalidOption, InvalidRow, unknown_name
from quire.labels import LabelOptions, causal_labels

VisionBatch: TypeAlias = "dict[str, Value | list[object]]"


@dataclass(frozen=True)
class VisionPaddingFreeCollator:
    """Makes one flat row `[1, N]` of samples or packs, isolated as ``model(**batch)``.

    `position_ids` are `(4, 1, N)`: positions in the sample first, in which transformers finds the
    samples (of three rows it finds none), then time, height and width. Patches and grids are laid
    end to end; a field that is not known becomes a list of one value for each sample.

    >>> collator = VisionPaddingFreeCollator(return_tensors="np")
    >>> batch = collator([[{"input_ids": [5, 6, 7]}, {"input_ids": [8, 9]}]])  # one pack
    >>> batch["labels"], batch["cu_seq_lens_q"]
    (array([[-100,    6,    7, -100,    9]]), array([0, 3, 5], dtype=int32))
    >>> batch["position_ids"][:, 0].tolist()[0]
    [0, 1, 2, 0, 1]
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
        samples = read_samples(features, options, self.token_fields)
        boundaries = _end_to_end(samples.rows.lengths)
        mrope = np.concatenate(positions_of(samples, options, self.model), axis=1)[:, None]
        text = boundaries.position_ids()
        batch: Batch = {
            "input_ids": _line(samples.rows.tokens),
            "labels": labels_of(samples, boundaries, _line, self.ignore_index),
            "position_ids": np.concatenate([text[None], mrope]),
            "text_position_ids": text,
            "mm_token_type_ids": _line(samples.token_types),
            **{name: _line(column) for name, column in samples.token_columns.items()},
        }
        batch |= transformers_arguments(boundaries) | varlen_arguments(boundaries)
        batch |= ATTENTION[self.attention](boundaries)
        return finished(batch, samples, self.return_tensors)


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


def _end_to_end(lengths: Sequence[int]) -> Boundaries:
    ends = np.cumsum(lengths)
    return Boundaries(
        shape=(1, int(ends[-1])),
        starts=ends - np.asarray(lengths),
        numbers=np.arange(1, len(lengths) + 1),
    )


def _line(columns: Sequence[Ints]) -> Ints:
    return np.concatenate(columns)[None]
