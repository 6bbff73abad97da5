"""Positions of samples: from the model's own `get_rope_index`, or by our rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from quire.collate.rows import Ints
from quire.collate.vision_mrope import Grids, ModelConfig, MropeOptions, mrope_position_ids
from quire.collate.vision_samples import VisionSamples
from quire.errors import InvalidRow, ModelError

if TYPE_CHECKING:
    import torch


class VisionModel(Protocol):
    """A vision-language model of transformers."""

    config: ModelConfig


def positions_of(
    samples: VisionSamples, options: MropeOptions, model: VisionModel | None = None
) -> list[Ints]:
    """`[3, T]` for each sample: time, height and width, counted from the sample's own start."""
    own = [
        _ours(index, types, grids, options)
        for index, (types, grids) in enumerate(zip(samples.token_types, samples.grids, strict=True))
    ]
    if model is None:
        return own
    # Ours come first in any case: they are the check that placeholders and images agree.
    rope_index = _rope_index(model)
    columns = zip(samples.rows.tokens, samples.token_types, samples.grids, strict=True)
    return [_by_model(rope_index, *column) for column in columns]


def _ours(index: int, types: Ints, grids: Grids, options: MropeOptions) -> Ints:
    try:
        return mrope_position_ids(types, grids, options)
    except InvalidRow as error:
        raise InvalidRow(f"sample {index} has {error}") from error


def _rope_index(model: VisionModel) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The model's method, which the part below its head has."""
    for owner in (model, getattr(model, "model", None)):
        found = getattr(owner, "get_rope_index", None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    raise ModelError(
        f"{type(model).__name__} has no get_rope_index; leave model out and give mrope="
        "MropeOptions(…), so that positions are made here"
    )


def _by_model(
    rope_index: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    tokens: Ints,
    types: Ints,
    grids: Grids,
) -> Ints:
    import torch

    given: dict[str, Any] = {
        "input_ids": torch.from_numpy(tokens)[None],
        "mm_token_type_ids": torch.from_numpy(types)[None],
        "image_grid_thw": torch.from_numpy(grids.image) if len(grids.image) else None,
        "video_grid_thw": torch.from_numpy(grids.video) if len(grids.video) else None,
        "second_per_grid_ts": None if grids.seconds is None else torch.from_numpy(grids.seconds),
    }
    known = inspect.signature(rope_index).parameters
    positions, _ = rope_index(**{name: value for name, value in given.items() if name in known})
    return np.asarray(positions[:, 0])
