"""Samples with images, read and checked again without the packer's code."""

from __future__ import annotations

import hashlib
import io
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, missing_dependency
from quire.verify.inputs.answers import NotOfItsKind, Talk, answers_of
from quire.verify.inputs.files import Values

Columns = dict[str, npt.NDArray[Any]]
TYPES, IMAGES = "mm_token_type_ids", "images"
_GRIDS = "image_grid_thw"
_TAG, _SHOWN = "<image>", "<|vision_start|><|image_pad|><|vision_end|>"
"""An image in the text of a message, and in the text that is tokenized."""
Grid = Sequence[int]
Grids = Callable[[int, int], Grid]
"""From height and width to the grid of an image."""
_SIGNS = {
    "media": ("videos", "video", "video_grid_thw", "pixel_values_videos", "audios"),
    "packed": ("document_starts", "seq_lengths"),
    "masks": ("loss_mask", "assistant_masks", "completion_mask"),
    "zeros": ("attention_mask", "position_ids"),
}


def keys_of_samples(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that are read of each record."""
    own = (options["tokens_column"], options["images_column"], "labels", TYPES, _GRIDS)
    return (*own, *(name for names in _SIGNS.values() for name in names))


def sample_encoder(options: Mapping[str, Any], folder: Path) -> Callable[[Values], Columns | None]:
    """A function from a record to its columns, and to its images under ``images``; None if it
    is bad. An image is told by its SHA-256 and its grid."""

    def encode(values: Values) -> Columns | None:
        ids: Any = values.get(options["tokens_column"])
        given = {n: values[n] for n in ("labels", TYPES) if values.get(n) is not None}
        lists: dict[str, Any] = {"input_ids": ids, **given}
        if (
            not isinstance(ids, list)
            or not all(_are_integers(one) for one in lists.values())
            or _has_signs(values)
        ):
            return None
        if len({len(one) for one in lists.values()}) > 1 or min(ids, default=0) < 0:
            return None
        digests = _digests(values.get(options["images_column"]), folder, options)
        grids: Any = values.get(_GRIDS)
        grids = [] if grids is None and digests == [] else grids
        if digests is None or not _are_grids(grids, len(digests)):
            return None
        types = _types(lists, options.get("image_token_id"))
        merge = int(options["merge_size"])
        sizes = [t * h * w // merge**2 for t, h, w in grids]
        if types is None or int(types.sum()) != sum(sizes):
            return None
        if any(h % merge or w % merge for _, h, w in grids):
            return None
        labels = np.array(lists.get("labels", ids), dtype=np.int64)
        return _sample(np.array(ids, dtype=np.int64), labels, types, digests, grids)

    return encode


def _sample(
    ids: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    types: npt.NDArray[np.int64],
    digests: Sequence[str],
    grids: Sequence[Grid],
) -> Columns:
    labels = np.where(types == 1, -100, labels)
    named = [f"{one} {t}x{h}x{w}" for one, (t, h, w) in zip(digests, grids, strict=True)]
    return {"input_ids": ids, "labels": labels, TYPES: types, IMAGES: np.array(named, str)}


def keys_of_messages(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that are read of each record with messages."""
    own = (options["messages_column"], "system", options["images_column"])
    tools = options.get("tools_column")
    return (*own, *_SIGNS["media"], *([tools] if tools else []))


def message_encoder(
    options: Mapping[str, Any],
    folder: Path,
    encode_talk: Callable[[Talk], Columns],
    grid_of: Grids,
) -> Callable[[Values], Columns | None]:
    """As `sample_encoder`, for messages that show images by tags or parts."""
    merge, token_id = int(options["merge_size"]), int(options["image_token_id"])

    def encode(values: Values) -> Columns | None:
        if any(values.get(name) not in (None, [], "") for name in _SIGNS["media"]):
            return None
        talk, inside = _shown(values, options)
        given = values.get(options["images_column"])
        files = _files(inside if given in (None, "", []) else given, folder, options)
        if files is None or any(max(one.size) > 200 * min(one.size) for one in files):
            return None
        grids = [grid_of(*one.size) for one in files]
        columns = encode_talk(talk)
        types = (columns["input_ids"] == token_id).astype(np.int64)
        tags = sum(str(message.get("content")).count(_SHOWN) for message in talk.messages)
        if not types.sum() == tags == len(grids):
            return None
        times = np.ones(len(types), np.int64)
        times[types == 1] = [t * h * w // merge**2 for t, h, w in grids]
        ids, labels, types = (
            np.repeat(one, times) for one in (columns["input_ids"], columns["labels"], types)
        )
        return _sample(ids, labels, types, [one.digest for one in files], grids)

    return encode


def _shown(values: Values, options: Mapping[str, Any]) -> tuple[Talk, list[Any]]:
    """The conversation with a placeholder for each image, and the images inside of its parts."""
    column = options["messages_column"]
    turns = values.get(column)
    first = turns[0] if isinstance(turns, list) and turns else None
    kind = "sharegpt" if isinstance(first, dict) and "from" in first else None
    (found,) = answers_of(values, {**options, "record_kind": kind}, is_chat=True)
    talk, inside = cast(Talk, found), list[Any]()
    messages = [_with_text(message, inside) for message in talk.messages]
    return talk._replace(messages=messages), inside


def _with_text(message: Any, inside: list[Any]) -> Any:  # noqa: ANN401
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = "".join(_part(one, inside) for one in content)
    if not isinstance(message, dict) or not isinstance(content, str):
        return message
    return {**message, "content": content.replace(_TAG, _SHOWN)}


def _part(part: Any, inside: list[Any]) -> str:  # noqa: ANN401
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "image":
        named = [part[name] for name in ("image", "path", "url") if part.get(name)]
        inside += named[:1]
        return _TAG
    text = part.get("text") if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise NotOfItsKind
    return text


def grids_of_model(folder: Path) -> Grids:
    """How the image processor of a Qwen-VL model resizes: the grid for height and width."""
    path = folder / "preprocessor_config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidOption(
            f"{path} cannot be read ({error}), so the grids of images cannot be computed; give the "
            "folder of the model that packed the output (--tokenizer)"
        ) from error
    size = config.get("size") or {}
    patch, merge = config.get("patch_size", 14), config.get("merge_size", 2)
    least = config.get("min_pixels") or size["shortest_edge"]
    most = config.get("max_pixels") or size["longest_edge"]
    unit = patch * merge

    def grid(height: int, width: int) -> Grid:
        rows, columns = round(height / unit), round(width / unit)
        area = rows * columns * unit**2
        if area > most:
            shrink = math.sqrt(height * width / most)
            rows, columns = (max(1, math.floor(n / shrink / unit)) for n in (height, width))
        elif area < least:
            grow = math.sqrt(least / (height * width))
            rows, columns = (math.ceil(n * grow / unit) for n in (height, width))
        return 1, rows * merge, columns * merge

    return grid


def is_over_budget(columns: Mapping[str, npt.NDArray[Any]], options: Mapping[str, Any]) -> bool:
    """Whether a sample has more images or patches than a row holds."""
    images = columns[IMAGES].tolist()
    sizes = [[int(n) for n in one.rpartition(" ")[2].split("x")] for one in images]
    patches = sum(t * h * w for t, h, w in sizes)
    limits = ((options.get("max_images"), len(images)), (options.get("max_patches"), patches))
    return any(limit is not None and count > limit for limit, count in limits)


def _are_integers(values: object) -> bool:
    return isinstance(values, list) and set(map(type, values)) <= {int}


def _has_signs(values: Values) -> bool:
    """Whether the record has what cannot be packed."""
    given = {name: values.get(name) for name in values}
    if any(given.get(name) not in (None, [], "") for name in _SIGNS["media"]):
        return True
    if any(isinstance(given.get(name), list) for name in _SIGNS["packed"]):
        return True
    if any(given.get(name) is not None for name in _SIGNS["masks"]):
        return True
    mask, positions = (given.get(name) or [] for name in _SIGNS["zeros"])
    return 0 in mask or 0 in positions[1:]


def _are_grids(grids: object, count: int) -> bool:
    if not isinstance(grids, list) or len(grids) != count:
        return False
    return all(_are_integers(one) and len(one) == 3 and min(one) > 0 for one in grids)


def _types(lists: Mapping[str, list[int]], token_id: int | None) -> npt.NDArray[np.int64] | None:
    given = np.array(lists[TYPES], dtype=np.int64) if TYPES in lists else None
    ids = np.array(lists["input_ids"], dtype=np.int64)
    found = given if token_id is None else (ids == token_id).astype(np.int64)
    if found is None:
        return np.zeros(len(ids), np.int64)
    same = given is None or np.array_equal(given, found)
    return found if same and np.isin(found, (0, 1)).all() else None


class _File(NamedTuple):
    digest: str
    size: tuple[int, int]
    """Height and width of the upright image."""


def _digests(given: object, folder: Path, options: Mapping[str, Any]) -> list[str] | None:
    """The SHA-256 of every image; None if one cannot be decoded."""
    files = _files(given, folder, options)
    return None if files is None else [one.digest for one in files]


def _files(given: object, folder: Path, options: Mapping[str, Any]) -> list[_File] | None:
    """Every image; None if one cannot be decoded."""
    listed = [] if given in (None, "") else given if isinstance(given, list) else [given]
    found = []
    for one in listed:
        path, data = (one.get("path"), one.get("bytes")) if isinstance(one, dict) else (one, None)
        if isinstance(path, bytes):
            path, data = None, path
        try:
            content = data if data is not None else (folder / str(path)).read_bytes()
        except (OSError, ValueError):
            return None
        size = _size_of(content, int(options["max_image_pixels"]))
        if size is None:
            return None
        found.append(_File(hashlib.sha256(content).hexdigest(), size))
    return found


def _size_of(data: bytes, most_pixels: int) -> tuple[int, int] | None:
    """Height and width of an image that can be decoded, as it is looked at."""
    try:
        from PIL import Image, ImageOps
    except ModuleNotFoundError:
        raise missing_dependency("PIL", "comparing images", "vision") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
        if image.width * image.height > most_pixels:
            return None
        image.load()
        width, height = ImageOps.exif_transpose(image).size
    except MemoryError:
        raise
    except Exception:  # Pillow raises various errors of damaged files
        return None
    return height, width
