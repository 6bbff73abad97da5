"""Documents to measure with: those of a packed dataset, or of random lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption

if TYPE_CHECKING:
    from quire.packed import PackedDataset

Document: TypeAlias = npt.NDArray[np.integer[Any]]


def packed_documents(rows: PackedDataset, count: int) -> list[Document]:
    """The first fragments of a packed dataset, in the order of its rows."""
    found: list[Document] = []
    for row in rows:
        found += np.split(row["input_ids"], row["document_starts"][1:])
        if len(found) >= count:
            break
    if not found:
        raise InvalidOption(f"{rows.path} has no rows; name a dataset that has some with --data")
    return found[:count]


def random_documents(count: int, vocab_size: int, max_length: int, seed: int) -> list[Document]:
    """Random tokens in documents of log-normal lengths, like those of instructions.

    Their median is 110 tokens, and one in a hundred has more than 790.
    """
    chance = np.random.default_rng(seed)
    lengths = np.clip(chance.lognormal(4.7, 0.85, count).astype(int), 2, max_length)
    return [chance.integers(0, vocab_size, length) for length in lengths]
