"""Images of records: where they are, their bytes, and whether they can be decoded.

Pillow decodes, and is imported on the first image.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quire.errors import InvalidOption, MissingDependency, missing_dependency
from quire.formats.record_kinds import RecordProblem
from quire.printable import printable

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 1 << 26
"""Pixels of the largest image that is decoded, unless another number is given."""


_ORIENTATION, _ON_THEIR_SIDES = 0x0112, (5, 6, 7, 8)
"""The EXIF tag for how the camera was held, and its values that exchange width and height."""
_TURNS: Mapping[object, str] = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""What makes an image upright, in Pillow's words."""


class ImageReference(NamedTuple):
    """An image of a record: the path that the record gives, or the bytes of the file."""

    path: str | None
    data: bytes | None = None


class ImageFacts(NamedTuple):
    """What packing needs to know of an image, whose bytes are not kept."""

    sha256: str
    num_bytes: int
    height: int
    width: int


def image_references(given: object) -> list[ImageReference]:
    """The images under a column: one or a list of paths, bytes, or structs of path and bytes.

    >>> image_references(["a.png", {"path": "b.png", "bytes": None}])
    [ImageReference(path='a.png', data=None), ImageReference(path='b.png', data=None)]
    """
    if given is None or given == "":
        return []
    listed = given if isinstance(given, list | tuple) else [given]
    return [_reference(number, one) for number, one in enumerate(listed)]


def _reference(number: int, given: object) -> ImageReference:
    if isinstance(given, bytes):
        return ImageReference(None, given)
    path, data = (
        (given.get("path"), given.get("bytes")) if isinstance(given, Mapping) else (given, None)
    )
    if not isinstance(path, str | None) or not isinstance(data, bytes | None) or not (path or data):
        raise RecordProblem(f"has an image {number} that is neither a path nor bytes")
    if data is None and path is not None and "://" in path:
        raise RecordProblem(f"has an image {number} that is a URL; download it, and give its path")
    return ImageReference(path, data)


def read_image(image: ImageReference, folder: Path) -> bytes:
    """The bytes of an image file; relative paths are relative to ``folder``."""
    if image.data is not None:
        return image.data
    return (folder / str(image.path)).read_bytes()


def image_facts(data: bytes, most_pixels: int) -> ImageFacts:
    """The facts of an image that can be decoded; otherwise a `RecordProblem` says why not."""
    with open_image(data, most_pixels) as image:
        width, height = image.size
        if _orientation(image) in _ON_THEIR_SIDES:
            width, height = height, width
        if image.format == "JPEG":  # decodes all data, but only an eighth of the pixels
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
        _decoded(image)
    return ImageFacts(hashlib.sha256(data).hexdigest(), len(data), height, width)


def decode_image(data: bytes, most_pixels: int = MOST_PIXELS) -> Image:
    """The image upright and in RGB, as transformers and datasets give it to image processors."""
    from PIL.Image import Transpose

    with open_image(data, most_pixels) as image:
        turn = _TURNS.get(_orientation(image))
        upright = _decoded(image) if turn is None else _decoded(image).transpose(Transpose[turn])
        return upright.convert("RGB")


def open_image(data: bytes, most_pixels: int) -> Image:
    """The image with only its header read; one of too many pixels is a `RecordProblem`."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise missing_pillow() from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
            image = Image.open(io.BytesIO(data))
    except Image.DecompressionBombError:
        raise RecordProblem(f"has an image of more than {most_pixels} pixels") from None
    except Exception as error:
        raise _unreadable(error) from error
    width, height = image.size
    if width * height > most_pixels:
        raise RecordProblem(
            f"has an image of {width} x {height} pixels, more than the limit of {most_pixels}"
        )
    return image


def _orientation(image: Image) -> object:
    """How the camera was held, as EXIF has it."""
    try:
        return image.getexif().get(_ORIENTATION)
    except Exception as error:
        raise _unreadable(error) from error


def _decoded(image: Image) -> Image:
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:
        raise _unreadable(error) from error
    return image


def _unreadable(error: Exception) -> RecordProblem:
    shown = (
        "is of no known format"
        if type(error).__name__ == "UnidentifiedImageError"
        else (f"cannot be decoded: {printable(str(error), keep='').rstrip('.')[:100]}")
    )
    return RecordProblem(f"has an image that {shown}")


def missing_pillow() -> MissingDependency:
    """The error for packing or reading images without Pillow."""
    return missing_dependency("PIL", "packing images", "vision")


def require_folder(folder: Path) -> Path:
    """The folder of images, if it exists."""
    if not folder.is_dir():
        raise InvalidOption(f"the folder of images {folder} does not exist; name another")
    return folder
