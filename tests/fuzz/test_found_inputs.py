"""What fuzzing found in the readers of a corpus."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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


_OPEN = """
import sys
from quire.errors import CorruptFile
from quire.formats import open_corpus
try:
    open_corpus(sys.argv[1], "parquet")
except CorruptFile as error:
    print(error)
"""


def test_a_parquet_footer_with_wrong_size_statistics_is_a_corrupt_file(tmp_path):
    """pyarrow ended the process: lists of required values have fewer levels to count."""
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"input_ids": [[1, 2], [3]]}), file)
    optional, required = (bytes([0x25, kind, 0x18, 7]) + b"element" for kind in (2, 0))
    data = file.read_bytes()
    assert data.count(optional) == 1
    file.write_bytes(data.replace(optional, required))
    command = [sys.executable, "-c", _OPEN, str(file)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "a.parquet cannot be read as parquet" in done.stdout
    assert "histogram" in done.stdout
