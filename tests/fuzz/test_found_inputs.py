"""What fuzzing found in the readers of a corpus."""

from __future__ import annotations

import resource
from pathlib import Path

import pyarrow as pa
import pytest

from quire.corpus.inputs import find_inputs
from quire.errors import CorruptFile


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the kernel's count")
def test_a_damaged_zst_file_gives_back_its_memory(tmp_path):
    """Arrow kept the buffer of every failed read, one mebibyte each."""
    file = tmp_path / "a.jsonl.zst"
    file.write_bytes(pa.compress(b'{"text": "a"}\n' * 50, "zstd", asbytes=True)[:-5])
    (found,) = find_inputs([file])

    def read() -> int:
        with pytest.raises(CorruptFile, match="is damaged"), found.open() as lines:
            lines.readline()
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()

    before = [read() for _ in range(20)][-1]
    assert [read() for _ in range(100)][-1] < before + (32 << 20)
