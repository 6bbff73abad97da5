"""Lengths of published datasets, as the histograms in this folder hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def wikipedia() -> npt.NDArray[np.int64]:
    """How many Wikipedia sequences have 1, 2, ... 512 tokens."""
    return np.array(_read("wikipedia_512")["counts_for_length_1_up"])


def documents(name: str) -> npt.NDArray[np.int64]:
    """(tokens, tiles) of every document of ``ai2d_vl`` or ``chartqa_vl``, shuffled.

    >>> documents("ai2d_vl").shape
    (12413, 2)
    """
    counts = _read(name)["counts_by_tiles_and_tokens"]
    sizes = [
        (int(tokens), int(tiles))
        for tiles, of_tokens in counts.items()
        for tokens, count in of_tokens.items()
        for _ in range(count)
    ]
    return np.random.default_rng(0).permutation(np.array(sizes))


def _read(name: str) -> dict[str, Any]:
    file = Path(__file__).with_name(f"{name}.json")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
