"""A corpus of over a thousand documents, packed once for all tests of the report."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import quire

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, 1,300 documents of all lengths, some empty, one bad, some hostile."""
    folder = tmp_path_factory.mktemp("report")
    inputs = folder / "inputs"
    inputs.mkdir()
    chance = random.Random(5)
    for name, count in (("<b>a.jsonl", 900), ("z.jsonl", 400)):
        lines = [json.dumps({"text": _text(chance)}) for _ in range(count)]
        lines[3] = json.dumps({"text": HOSTILE})
        lines[7] = '{"text": 5}' if name == "z.jsonl" else lines[7]
        (inputs / name).write_text("\n".join(lines) + "\n")
    quire.pack_corpus(
        [inputs], folder / "packed", "byte", max_length=256, partition_size="64K", max_bad_records=3
    )
    return folder / "packed"


def _text(chance: random.Random) -> str:
    return "word " * int(chance.lognormvariate(2.5, 1.2) - 1)
