"""The fields of an options class by their types."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints


def integer_fields(kind: type, *, optional: bool = True) -> list[str]:
    """The names of integer fields; with ``optional``, also those that may be None."""
    hints = get_type_hints(kind)
    kinds = [int, int | None] if optional else [int]
    return [field.name for field in fields(kind) if hints[field.name] in kinds]
