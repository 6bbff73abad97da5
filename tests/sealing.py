"""Changed states with a matching checksum, which no accident makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quire.seals import checksum


def resealed(state: Mapping[Any, Any]) -> dict[Any, Any]:
    """The state with the checksum of its current content."""
    said = {name: value for name, value in state.items() if name != "checksum"}
    return {**said, "checksum": checksum({str(name): said[name] for name in said})}
