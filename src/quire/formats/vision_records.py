"""Records with images: encoded samples, or conversations whose messages show images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.formats.images import ImageReference, image_references
from quire.formats.record_kinds import Conversation, Record, RecordProblem, required
from quire.formats.token_columns import TOKENS, unfit_record

if TYPE_CHECKING:
    from quire.formats.fields import Fields

IMAGE_TAG = "<image>"
"""Where a conversation of text shows its next image, as in LLaVA's and ms-swift's data."""
TYPES, GRIDS = "mm_token_type_ids", "image_grid_thw"
_NOT_PACKED = ("videos", "video", "video_grid_thw", "pixel_values_videos", "audios")
_MASKS = ("loss_mask", "assistant_masks", "completion_mask")


class VisionSample(NamedTuple):
    """A record with images; it has tokens, or a conversation with a tag for each image."""

    content: Mapping[str, list[int]] | Conversation
    images: list[ImageReference]
    grids: list[list[int]] | None = None
    """Time, height and width of each image in patches, if the record gives them."""


def read_encoded(record: Record, fields: Fields) -> VisionSample:
    """A sample that a processor encoded: ``input_ids``, its images, and their grids."""
    _require_packable(record)
    if (problem := unfit_record(record)) is not None:
        raise RecordProblem(problem)
    for name in _MASKS:
        if record.get(name) is not None:
            raise RecordProblem(f"has {name!r}; give labels, with -100 where nothing is trained")
    columns = {TOKENS: _integers(record, fields.tokens_column)}
    for name in ("labels", TYPES):
        if record.get(name) is not None:
            columns[name] = _integers(record, name)
    for name, values in columns.items():
        if len(values) != len(columns[TOKENS]):
            raise RecordProblem(f"has {len(columns[TOKENS])} {TOKENS} but {len(values)} {name}")
    images = image_references(record.get(fields.images_column))
    return VisionSample(columns, images, _grids(record, len(images)))


def read_conversation(record: Record, conversation: Conversation, fields: Fields) -> VisionSample:
    """Messages whose images are tags in their text or parts of their content."""
    _require_packable(record)
    inside: list[ImageReference] = []
    messages = [_with_tags(message, inside) for message in conversation.messages]
    images = image_references(record.get(fields.images_column)) or inside
    found = sum(_num_tags(message) for message in messages)
    if found != len(images):
        raise RecordProblem(f"has {found} {IMAGE_TAG} in its messages but {len(images)} images")
    return VisionSample(conversation._replace(messages=messages), images)


def _with_tags(message: Any, images: list[ImageReference]) -> Any:  # noqa: ANN401 - a JSON value
    """The message with text as content, and a tag for each part that is an image."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return message
    return {**message, "content": "".join(_text_of(part, images) for part in content)}


def _text_of(part: object, images: list[ImageReference]) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping) and part.get("type") == "image":
        given = part.get("image") or part.get("path") or part.get("url")
        images += image_references(given)
        return IMAGE_TAG
    text = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        raise RecordProblem("has content that is neither text nor an image")
    return text


def _num_tags(message: object) -> int:
    content = message.get("content") if isinstance(message, Mapping) else None
    return content.count(IMAGE_TAG) if isinstance(content, str) else 0


def _require_packable(record: Record) -> None:
    for name in _NOT_PACKED:
        if record.get(name) not in (None, [], ""):
            raise RecordProblem(f"has {name!r}, but only images are packed on disk")


def _integers(record: Record, name: str) -> list[int]:
    values: list[int] = required(record, name, list)
    if set(map(type, values)) - {int}:
        raise RecordProblem(f"has something else than integers under {name!r}")
    return values


def _grids(record: Record, num_images: int) -> list[list[int]] | None:
    given = record.get(GRIDS)
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != num_images:
        raise RecordProblem(
            f"has {len(given) if isinstance(given, list) else 'no list of'} {GRIDS} but "
            f"{num_images} images"
        )
    for grid in given:
        is_list = isinstance(grid, list) and len(grid) == 3
        if not is_list or not all(type(size) is int and 0 < size < 1 << 20 for size in grid):
            raise RecordProblem(f"has {GRIDS} that are not three positive integers for each image")
    return given
