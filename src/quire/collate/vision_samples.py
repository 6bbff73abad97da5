"""Encoded vision-language samples, read and checked once: tokens, images and everything else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from quire.collate.rows import LOSS_MASKS, Feature, Ints, Rows, read_rows
from quire.collate.tensors import Batch
from quire.collate.vision_fields import (
    GRIDS,
    PIXELS,
    VISION_FIELDS,
    gather_others,
    grid_of,
    join,
    token_column,
)
from quire.collate.vision_mrope import IMAGE, KINDS, TEXT, VIDEO, Grids, MropeOptions
from quire.errors import InvalidRow

Pack: TypeAlias = Sequence[Feature]
_READ_AS_ROWS = ("input_ids", "labels", "attention_mask", *LOSS_MASKS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VisionSamples:
    """The samples of a batch, in order."""

    rows: Rows
    """Tokens, labels and loss masks of every sample."""
    token_types: list[Ints]
    """0 at text, 1 at placeholders of images, 2 at those of videos."""
    grids: list[Grids]
    vision: Batch
    """Patches and grids of all samples, end to end."""
    token_columns: dict[str, list[Ints]]
    """Other fields of one value for each token."""
    others: dict[str, list[object]]
    """Fields of one value for each sample."""

    @property
    def loss_mask(self) -> list[Ints] | None:
        """Where labels may stand: placeholders are no targets unless given labels say so."""
        if self.rows.labels is not None:
            return self.rows.loss_mask
        text = [(types == TEXT).astype(np.int64) for types in self.token_types]
        if self.rows.loss_mask is None:
            return text
        return [np.minimum(*both) for both in zip(text, self.rows.loss_mask, strict=True)]


def read_samples(
    packs: Iterable[Pack],
    options: MropeOptions,
    token_fields: Sequence[str] = (),
) -> VisionSamples:
    """The samples of these packs; errors name a sample by its place among all of them."""
    samples = [sample for pack in packs for sample in pack]
    rows = read_rows([_token_part(sample, index) for index, sample in enumerate(samples)])
    types = [_token_types(sample, index, options) for index, sample in enumerate(samples)]
    grids = [_grids(sample, index) for index, sample in enumerate(samples)]
    _require_seconds(samples, grids)
    return VisionSamples(
        rows=rows,
        token_types=types,
        grids=grids,
        vision=_joined(samples),
        token_columns={
            name: [token_column(sample, name, i) for i, sample in enumerate(samples)]  # type: ignore[misc]
            for name in token_fields
            if any(name in sample for sample in samples)
        },
        others=gather_others(samples, token_fields),
    )


def as_rows(features: Sequence[Feature | Pack]) -> list[Pack]:
    """The samples of each row: those of a pack, or all of them where features are samples."""
    packs = as_packs(features)
    if not has_packs(features):
        return [[sample for pack in packs for sample in pack]]
    for number, pack in enumerate(packs):
        if not pack:
            raise InvalidRow(f"pack {number} has no samples; leave it out of the batch")
    return packs


def has_packs(features: Sequence[Feature | Pack]) -> bool:
    """Whether these are packs and not samples; a batch holds one or the other."""
    are_samples = [isinstance(feature, Mapping) for feature in features]
    if any(are_samples) and not all(are_samples):
        raise InvalidRow(
            f"feature {are_samples.index(False)} is a pack and feature "
            f"{are_samples.index(True)} a sample; a batch holds one or the other"
        )
    return not all(are_samples)


def as_packs(features: Sequence[Feature | Pack]) -> list[Sequence[Feature]]:
    """The packs of a batch; a sample that stands alone is a pack of one."""
    if isinstance(features, Mapping):
        raise InvalidRow("a batch is a list of samples or packs, not one sample; put it in a list")
    if not isinstance(features, Iterable):
        raise InvalidRow(f"a batch is a list of samples or packs, not {features!r}")
    return [_pack(feature, place) for place, feature in enumerate(features)]


def _pack(feature: object, place: int) -> Sequence[Feature]:
    if isinstance(feature, Mapping):
        return [feature]
    if isinstance(feature, Sequence) and not isinstance(feature, str):
        return feature
    raise InvalidRow(
        f"feature {place} is a {type(feature).__name__}; a feature is a sample (a dict) or a pack "
        "(a list of samples)"
    )


def _token_part(sample: Feature, index: int) -> Feature:
    if not isinstance(sample, Mapping):
        raise InvalidRow(f"sample {index} is a {type(sample).__name__}; a sample is a dict")
    if sample.get("position_ids") is not None:
        raise InvalidRow(
            f"sample {index} brings position_ids, but the collator makes them, so that samples "
            "stay apart; leave them out"
        )
    for name in ("document_starts", "seq_lengths"):
        if sample.get(name) is not None and len(sample[name]) > 1:
            raise InvalidRow(
                f"sample {index} holds {len(sample[name])} documents, as its {name} say, but a "
                "sample here is one; give a pack as a list of its samples, and rows of text alone "
                "to PaddingFreeCollator or DataCollatorForCausalLM"
            )
    return {name: sample[name] for name in _READ_AS_ROWS if name in sample}


def _token_types(sample: Feature, index: int, options: MropeOptions) -> Ints:
    """As given, else from the placeholders' ids; if both are known they must agree."""
    ids = np.asarray(sample["input_ids"])
    known = {IMAGE: options.image_token_id, VIDEO: options.video_token_id}
    found = np.zeros(len(ids), dtype=np.int64)
    for kind, token_id in known.items():
        if token_id is not None:
            found[ids == token_id] = kind
    if sample.get("mm_token_type_ids") is None:
        _require_known(sample, index, known)
        return found
    given = token_column(sample, "mm_token_type_ids", index)
    if given.dtype.kind not in "iub":
        raise InvalidRow(
            f"sample {index}: mm_token_type_ids have dtype {given.dtype}, but are integers; take "
            "them from the processor"
        )
    types = given.astype(np.int64)
    for kind, token_id in known.items():
        if token_id is not None and not np.array_equal(types == kind, found == kind):
            place = int(np.argmax((types == kind) != (found == kind)))
            raise InvalidRow(
                f"sample {index}: mm_token_type_ids[{place}] is {types[place]} but input_ids"
                f"[{place}] is {ids[place]}, and {token_id} is the {KINDS[kind]} placeholder; "
                "take both from one processor"
            )
    if not np.isin(types, (TEXT, *KINDS)).all():
        raise InvalidRow(
            f"sample {index}: mm_token_type_ids hold {types.max()}, but only 0 (text), 1 (image) "
            "and 2 (video) are known"
        )
    return types


def _require_known(sample: Feature, index: int, known: Mapping[int, int | None]) -> None:
    for name, (kind, token_id) in zip(GRIDS, known.items(), strict=True):
        if sample.get(name) is not None and token_id is None:
            raise InvalidRow(
                f"sample {index} has {name} but no mm_token_type_ids, and no "
                f"{KINDS[kind]}_token_id is known; give the collator mrope="
                "MropeOptions.of_config(model.config)"
            )


def _grids(sample: Feature, index: int) -> Grids:
    """The sample's grids, if patches and grids tell of the same images."""
    image, video = (grid_of(sample, name, index) for name in GRIDS)
    for name, grid, pixels in zip(GRIDS, (image, video), PIXELS, strict=True):
        given = _count(sample, pixels, index)
        described = sum(map(math.prod, grid.tolist()))  # numpy's product would wrap around
        if given != described:
            raise InvalidRow(
                f"sample {index}: {pixels} have {given} patches but {name} describe {described}; "
                "give both as the processor returns them"
            )
    seconds = sample.get("second_per_grid_ts")
    if seconds is not None and (found := _count(sample, "second_per_grid_ts", index)) != len(video):
        raise InvalidRow(
            f"sample {index} has {found} second_per_grid_ts but {len(video)} videos; give "
            "one for each"
        )
    read = None if seconds is None else np.asarray(seconds, dtype=np.float32)
    return Grids(image=image, video=video, seconds=read)


def _count(sample: Feature, name: str, index: int) -> int:
    """How many patches or numbers a field holds."""
    values = sample.get(name)
    try:
        return 0 if values is None else len(values)
    except TypeError:
        raise InvalidRow(
            f"sample {index}: {name} is {values!r:.60}, one value, but must be a list; give what "
            "the processor returns"
        ) from None


def _require_seconds(samples: Sequence[Feature], grids: Sequence[Grids]) -> None:
    """In a joined list the seconds of one sample would become those of another."""
    with_videos = [index for index, grid in enumerate(grids) if len(grid.video)]
    given = [samples[index].get("second_per_grid_ts") is not None for index in with_videos]
    if any(given) and not all(given):
        without, having = with_videos[given.index(False)], with_videos[given.index(True)]
        raise InvalidRow(
            f"sample {without} has videos but no second_per_grid_ts, and sample {having} has; "
            "give them to all samples with videos or to none"
        )


def _joined(samples: Sequence[Feature]) -> Batch:
    values = ((name, join(samples, name)) for name in VISION_FIELDS)
    return {name: value for name, value in values if value is not None}  # type: ignore[misc]
