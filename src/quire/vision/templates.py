"""Attributes of a template (ms-swift's, or similar objects) that packing sets and reads."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from quire.options import require_integer
from quire.vision.options import VisionPackingOptions

Template = TypeVar("Template")


def prepare_template(template: Any, options: VisionPackingOptions) -> None:  # noqa: ANN401
    """Set ``packing``, ``padding_free`` and, with ``global_max_length``, ``max_length``."""
    if options.global_max_length is not None:
        template.max_length = options.global_max_length
    template.packing = True
    template.padding_free = True


def evaluation_template(template: Template) -> Template:
    """A copy for batches that are padded and not packed; the original keeps its flags.

    >>> from types import SimpleNamespace
    >>> training = SimpleNamespace(packing=True, padding_free=True, max_length=8)
    >>> evaluation_template(training), training.packing
    (namespace(packing=False, padding_free=False, max_length=8), True)
    """
    unpacked: Any = copy.copy(template)
    unpacked.packing = False
    unpacked.padding_free = False
    return unpacked  # type: ignore[no-any-return]


def token_id(template: object, name: str, given: int | None = None) -> int | None:
    """The id of a placeholder: as given, or from the template or its processor."""
    if given is not None:
        return require_integer(name, given, 0)
    for owner in (template, getattr(template, "processor", None)):
        found = getattr(owner, name, None)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
    return None


def merge_size(template: object) -> int:
    """Patches per side that one placeholder represents; 2, as in all Qwen-VL models so far."""
    processor = getattr(template, "processor", None)
    found = getattr(getattr(processor, "image_processor", None), "merge_size", None)
    return found if isinstance(found, int) and found > 0 else 2
