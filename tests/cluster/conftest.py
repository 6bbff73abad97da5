"""A cluster of two nodes shared by all tests, corpora with their expected bytes, a time limit."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.cluster.corpora import KINDS, Corpus
from tests.cluster.nodes import several_nodes
from tests.corpus.corpora import hashes

MEMORY = Path("/dev/shm")  # noqa: S108 - only a faster place for the same files
LIMIT_SECONDS = 240
"""Per test: these tests must detect endless waits."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:  # warnings of Ray's, which are not ours to mend
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"this test takes more than {LIMIT_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="package")
def memory() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(memory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=memory))


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    with several_nodes(2) as made:
        yield made


@pytest.fixture(scope="package")
def corpora(memory: Path) -> Any:
    """A function of the kind: the corpus, and the bytes that the local engine makes of it."""

    @cache
    def made(kind: str) -> tuple[Corpus, dict[str, str]]:
        (memory / kind).mkdir()
        corpus = KINDS[kind](memory / kind)
        result = corpus.pack(memory / f"{kind}-local")
        assert len(result.manifest["shards"]) >= 10
        return corpus, hashes(memory / f"{kind}-local")

    return made


@pytest.fixture
def corpus(corpora: Any) -> Corpus:
    return corpora("lines")[0]


@pytest.fixture
def undisturbed(corpora: Any) -> dict[str, str]:
    return corpora("lines")[1]
