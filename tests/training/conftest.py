from __future__ import annotations

from pathlib import Path

import pytest

from tests.training import matrix


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Texts for streams, and packed rows: 45 rows or so of at most 64 tokens."""
    folder = tmp_path_factory.mktemp("training") / "corpus"
    matrix.make_corpus(folder)
    return folder
