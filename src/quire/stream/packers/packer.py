"""What every packer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from quire.stream.state import State, Tokens
from quire.stream.windows import Window


class Packer(Protocol):
    """Takes documents, gives windows; every token of a document leaves exactly once."""

    @property
    def pending(self) -> tuple[int, int]:
        """Documents of which no token has left, and tokens that have not."""

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows that leave as a document (of at least one token) comes in."""

    def flush(self) -> list[Window]:
        """Windows of everything that waits."""

    def freeze(self) -> Callable[[], State]:
        """A function that gives the state of this moment, in JSON; cheap to make."""

    def restore(self, state: object) -> None:
        """Continue exactly where the state was taken."""
