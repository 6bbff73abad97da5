"""Positions of vision-language tokens in time, height and width (mRoPE).

Text advances by one in all three. An image has one time position and spans its merged patches;
what follows continues after the longer of its sides. The rules are those of `get_rope_index` in
transformers 5, for Qwen2-VL, Qwen2.5-VL and Qwen3-VL; a model's own method can be used instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, InvalidRow, ModelError, unknown_name

if TYPE_CHECKING:
    import torch

    from quire.collate.vision.samples import VisionSamples

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

TEXT, IMAGE, VIDEO = 0, 1, 2
"""Values of `mm_token_type_ids`."""
KINDS = MappingProxyType({IMAGE: "image", VIDEO: "video"})


class VisionTower(Protocol):
    """The part of a model's config that describes its images."""

    spatial_merge_size: int
    tokens_per_second: float


class ModelConfig(Protocol):
    """The config of a vision-language model of transformers."""

    model_type: str
    image_token_id: int
    video_token_id: int
    vision_config: VisionTower


class VisionModel(Protocol):
    """A vision-language model of transformers."""

    config: ModelConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class MropeOptions:
    """How a model assigns positions to its vision tokens.

    >>> MropeOptions(spatial_merge_size=0)
    Traceback (most recent call last):
    quire.errors.InvalidOption: spatial_merge_size is 0 but must be at least 1
    """

    spatial_merge_size: int = 2
    """Patches per side that become one token."""
    tokens_per_second: float | None = None
    """Temporal positions per second of video (Qwen2.5-VL); None: frames are one apart."""
    frames_stand_apart: bool = False
    """Whether a video's frames are separate grids with timestamps between them (Qwen3-VL)."""
    image_token_id: int | None = None
    """The placeholder of images; needed if samples have no `mm_token_type_ids`."""
    video_token_id: int | None = None

    def __post_init__(self) -> None:
        if self.spatial_merge_size < 1:
            raise InvalidOption(
                f"spatial_merge_size is {self.spatial_merge_size} but must be at least 1"
            )

    @classmethod
    def of_config(cls, config: ModelConfig) -> MropeOptions:
        """The options for a transformers config with a known `model_type`."""
        if config.model_type not in _OF_MODEL_TYPE:
            raise unknown_name("model_type", config.model_type, _OF_MODEL_TYPE)
        uses_seconds, frames_stand_apart = _OF_MODEL_TYPE[config.model_type]
        vision = config.vision_config
        return cls(
            spatial_merge_size=vision.spatial_merge_size,
            tokens_per_second=vision.tokens_per_second if uses_seconds else None,
            frames_stand_apart=frames_stand_apart,
            image_token_id=config.image_token_id,
            video_token_id=config.video_token_id,
        )


_OF_MODEL_TYPE: Mapping[str, tuple[bool, bool]] = MappingProxyType(
    {
        "qwen2_vl": (False, False),
        "qwen2_5_vl": (True, False),
        "qwen3_vl": (False, True),
        "qwen3_vl_moe": (False, True),
    }
)
"""Whether videos are spaced by seconds, and whether their frames are separate."""


def resolve_mrope(mrope: MropeOptions | None, model: VisionModel | None) -> MropeOptions:
    """The options as given, else the model's, else Qwen2-VL's."""
    if mrope is not None:
        return mrope
    return MropeOptions() if model is None else MropeOptions.of_config(model.config)


_QWEN2_VL = MropeOptions()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Grids:
    """The images and videos of one sample, in the order of their placeholders."""

    image: Ints
    """`[images, 3]`: time, height and width in patches."""
    video: Ints
    """`[videos, 3]`."""
    seconds: Floats | None = None
    """`[videos]`: seconds between the temporal positions of a video (`second_per_grid_ts`)."""


def mrope_position_ids(token_types: Ints, grids: Grids, options: MropeOptions = _QWEN2_VL) -> Ints:
    """`[3, T]`: the positions of one sample's tokens in time, height and width.

    >>> grids = Grids(image=np.array([[1, 4, 4]]), video=np.empty((0, 3), np.int64))
    >>> mrope_position_ids(np.array([0, 1, 1, 1, 1, 0]), grids)
    array([[0, 1, 1, 1, 1, 3],
           [0, 1, 1, 2, 2, 3],
           [0, 1, 2, 1, 2, 3]])
    """
    waiting = {IMAGE: _blocks(grids.image, options), VIDEO: _video_blocks(grids, options)}
    parts: list[Ints] = []
    position = 0
    for kind, length in _runs(token_types):
        if kind == TEXT:
            parts.append(np.broadcast_to(np.arange(position, position + length), (3, length)))
            position += length
            continue
        for block, side in _filling(length, waiting[kind], KINDS[kind]):
            parts.append(block + position)
            position += side
    for kind, blocks in waiting.items():
        if next(blocks, None) is not None:
            raise InvalidRow(
                f"fewer {KINDS[kind]} placeholders than its {KINDS[kind]}_grid_thw describes "
                f"({_num_tokens(grids, kind, options)}, found {int((token_types == kind).sum())}); "
                "encode the sample again and do not truncate it"
            )
    return np.concatenate(parts, axis=1)


Block: TypeAlias = tuple[Ints, int]
"""Positions `[3, tokens]` that start at 0, and the offset of what follows."""


def _runs(token_types: Ints) -> Iterator[tuple[int, int]]:
    """Kind and length of every run of tokens of one kind."""
    starts = np.flatnonzero(np.diff(token_types, prepend=-1))
    lengths = np.diff(starts, append=len(token_types))
    return zip(token_types[starts].tolist(), lengths.tolist(), strict=True)


def _filling(length: int, blocks: Iterator[Block], kind: str) -> Iterator[Block]:
    """The blocks that fill a run of placeholders; images may be adjacent."""
    left = length
    while left:
        block, side = next(blocks, (None, 0))
        if block is None or block.shape[1] > left:
            needed = "no grid is left for them" if block is None else f"needs {block.shape[1]}"
            raise InvalidRow(
                f"a run of {left} {kind} placeholders, but the next {kind} {needed}; give "
                f"one row of {kind}_grid_thw for each {kind}, and do not truncate its placeholders"
            )
        yield block, side
        left -= block.shape[1]


def _blocks(grids: Ints, options: MropeOptions) -> Iterator[Block]:
    for grid in grids:
        yield _block(grid, np.arange(grid[0]), options)


def _video_blocks(grids: Grids, options: MropeOptions) -> Iterator[Block]:
    if options.frames_stand_apart:
        frames = grids.video.repeat(grids.video[:, 0], axis=0)
        frames[:, 0] = 1
        yield from _blocks(frames, options)
        return
    for number, grid in enumerate(grids.video):
        seconds = None if grids.seconds is None else grids.seconds[number]
        yield _block(grid, _frame_times(int(grid[0]), seconds, options), options)


def _frame_times(num_frames: int, seconds: np.float32 | None, options: MropeOptions) -> Ints:
    """Temporal positions; in float32, because the models round in it."""
    if options.tokens_per_second is None:
        return np.arange(num_frames)
    interval = np.float32(options.tokens_per_second)
    if seconds is not None:
        interval = interval * np.float32(seconds)
    return (np.arange(num_frames, dtype=np.float32) * interval).astype(np.int64)


def _block(grid: Ints, times: Ints, options: MropeOptions) -> Block:
    merge = options.spatial_merge_size
    if (grid[1:] % merge).any():
        raise InvalidRow(
            f"a grid {grid.tolist()} whose height and width are not multiples of "
            f"spatial_merge_size, {merge}; use what the model's own processor returns"
        )
    height, width = (int(side) // merge for side in grid[1:])
    axes = np.meshgrid(times, np.arange(height), np.arange(width), indexing="ij")
    return np.stack(axes).reshape(3, -1), max(height, width)


def _num_tokens(grids: Grids, kind: int, options: MropeOptions) -> int:
    grid = grids.image if kind == IMAGE else grids.video
    return int(grid.prod(axis=1).sum()) // options.spatial_merge_size**2


def positions_of(
    samples: VisionSamples, options: MropeOptions, model: VisionModel | None = None
) -> list[Ints]:
    """`[3, T]` per sample: time, height and width, from the start of the sample."""
    own = [
        _ours(index, types, grids, options)
        for index, (types, grids) in enumerate(zip(samples.token_types, samples.grids, strict=True))
    ]
    if model is None:
        return own
    # Computed above in any case, to check that placeholders and images agree.
    rope_index = _rope_index(model)
    columns = zip(samples.rows.tokens, samples.token_types, samples.grids, strict=True)
    return [_by_model(rope_index, *column) for column in columns]


def _ours(index: int, types: Ints, grids: Grids, options: MropeOptions) -> Ints:
    try:
        return mrope_position_ids(types, grids, options)
    except InvalidRow as error:
        raise InvalidRow(f"sample {index} has {error}") from error


def _rope_index(model: VisionModel) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The model's `get_rope_index`, which may belong to the part below its head."""
    for owner in (model, getattr(model, "model", None)):
        found = getattr(owner, "get_rope_index", None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    raise ModelError(
        f"{type(model).__name__} has no get_rope_index; leave model out and give mrope="
        "MropeOptions(...), so that positions are computed here"
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
