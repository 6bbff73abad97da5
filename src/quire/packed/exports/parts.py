"""What every export shares: the rows of a part, and files that appear when they are whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidRow
from quire.packed.dataset import PackedDataset
from quire.packed.rows import STARTS, Row
from quire.storage import AnyPath

TOKENS = "input_ids"
_AT_ONCE = 128
"""Rows that are gathered together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Consecutive rows that go into the same files."""

    dataset: PackedDataset
    folder: AnyPath
    number: int
    rows: range
    num_parts: int
    settings: Mapping[str, Any]
    """The options of the export, by name."""

    @property
    def stem(self) -> str:
        """The start of the names of its files."""
        return f"part-{self.number:05}"

    def batches(self) -> Iterator[list[Row]]:
        """The rows, some at a time."""
        for first in range(self.rows.start, self.rows.stop, _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, self.rows.stop))
            yield self.dataset.__getitems__(numbers)

    @property
    def per_token(self) -> list[str]:
        """The columns with a value per token, the tokens first."""
        return [name for name in self.dataset.columns if name != STARTS]


class Exporter(Protocol):
    """What a module of a format defines."""

    TOKENS_ONLY: bool
    """Whether its files have no place for labels and loss masks."""
    TOKENS_PER_PART: int
    OPTIONS: Mapping[str, tuple[str, ...]]
    """Options, and the values that each may have; the first is the default."""

    def names(self, part: Part) -> list[str]:
        """The files of a part; the last one is written last."""

    def write(self, part: Part) -> None:
        """Write the files of a part."""

    def finish(self, parts: list[Part]) -> list[str]:
        """Write what describes all parts; returns the names of these files."""


def fragment_lengths(row: Row) -> npt.NDArray[np.int64]:
    """The tokens of every fragment of a row.

    >>> fragment_lengths({"document_starts": np.array([0, 3]), "input_ids": np.arange(5)})
    array([3, 2])
    """
    edges: npt.NDArray[np.int64] = np.append(row[STARTS], len(row[TOKENS])).astype(np.int64)
    return edges[1:] - edges[:-1]


def as_type(ids: npt.NDArray[Any], dtype: np.dtype[Any], row: int) -> npt.NDArray[Any]:
    """Token ids of the type of a file; raises if one does not fit."""
    most = np.iinfo(dtype).max
    if len(ids) and int(ids.max()) > most:
        raise InvalidRow(
            f"row {row} has the token id {int(ids.max())}, but {dtype.name} holds at most {most}; "
            "export with a wider dtype"
        )
    return ids.astype(dtype)
