"""The work of a second process; it imports little, so that it starts fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quire.packed import PackedDataset


def read_all(uri: str, cache: Path, found: Any) -> None:
    found.put([row["input_ids"].tolist() for row in PackedDataset(uri, cache_dir=cache)])
