"""Encoded samples with images, read and checked again without the packer's code."""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.errors import missing_dependency
from quire.verify.inputs.files import Values

Columns = dict[str, npt.NDArray[Any]]
TYPES, IMAGES = "mm_token_type_ids", "images"
_GRIDS = "image_grid_thw"
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
        labels[types == 1] = -100
        named = [f"{one} {t}x{h}x{w}" for one, (t, h, w) in zip(digests, grids, strict=True)]
        tokens = np.array(ids, dtype=np.int64)
        return {"input_ids": tokens, "labels": labels, TYPES: types, IMAGES: np.array(named, str)}

    return encode


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


def _digests(given: object, folder: Path, options: Mapping[str, Any]) -> list[str] | None:
    """The SHA-256 of every image; None if one cannot be decoded."""
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
        if not _is_image(content, int(options["max_image_pixels"])):
            return None
        found.append(hashlib.sha256(content).hexdigest())
    return found


def _is_image(data: bytes, most_pixels: int) -> bool:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise missing_dependency("PIL", "comparing images", "vision") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
        if image.width * image.height > most_pixels:
            return False
        image.load()
    except MemoryError:
        raise
    except Exception:  # Pillow raises various errors of damaged files
        return False
    return True
