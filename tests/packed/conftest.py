"""Folders in memory where there are such: a sync to a busy disk takes longer than the test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # noqa: S108 - only a faster place for the same files


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        inner = Path(folder) / "test"
        inner.mkdir()
        yield inner
