"""What is fuzzed: a maker of inputs, and the reader that gets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

PREPARING = 2**64 - 1
"""Stands for the number of an execution where the first is yet to come."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A reader that is ready, in a folder of its own."""

    make: Callable[[Random], Any]
    """An input, by choice."""
    read: Callable[[Any], str | None]
    """Give the input to the reader; a word says that it was refused without an error."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A subject by name."""

    name: str
    prepare: Callable[[Path], Subject]


def by_name(*targets: Target) -> dict[str, Target]:
    """The targets by their names."""
    return {target.name: target for target in targets}
