"""Fuzzing targets: a function that makes inputs, and the reader that receives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

PREPARING = 2**64 - 1
"""The number of an execution before the first one."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A reader, prepared in its own folder."""

    make: Callable[[Random], Any]
    """A random input."""
    read: Callable[[Any], str | None]
    """Give the input to the reader; returns why it was refused, if without an error."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A subject by name."""

    name: str
    prepare: Callable[[Path], Subject]


def by_name(*targets: Target) -> dict[str, Target]:
    """The targets by their names."""
    return {target.name: target for target in targets}
