"""Memory is bounded by what is packed together, not by the corpus; in separate processes."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from quire.corpus import replan
from tests.corpus.corpora import jsonl

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs the kernel's count of a process's memory"
)
MEBIBYTE = 1 << 20
SLACK = 28 * MEBIBYTE
"""Eight times the corpus is 14 MB of text and 56 MB of tokens more; allocators keep less."""
MEASURED = """
import json, sys
from pathlib import Path
from quire.corpus import pack_corpus

def high_water():
    # Not ru_maxrss, which a new process takes over from the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

before = high_water()
pack_corpus([sys.argv[1]], sys.argv[2], "byte", **json.loads(sys.argv[3]))
print(high_water() - before)
"""


def peak(path: Path, out: Path, **options: object) -> int:
    """The peak memory of packing in bytes, beyond what Python and its packages take."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, path, out, json.dumps({"max_length": 2048, **options})],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """A corpus of 2 MB and one of 16 MB, as lines and compressed."""
    folder = tmp_path_factory.mktemp("corpora")
    letters = np.random.default_rng(0).integers(97, 123, (16_000, 1000), dtype=np.uint8)
    found: dict[str, list[Path]] = {"jsonl": [], "jsonl.gz": []}
    for times in (1, 8):
        records = [row.tobytes().decode() for row in letters[: 2000 * times]]
        path = jsonl(folder / f"{times}.jsonl", records)
        packed = folder / f"{times}.jsonl.gz"
        packed.write_bytes(gzip.compress(path.read_bytes(), 1))
        found["jsonl"].append(path)
        found["jsonl.gz"].append(packed)
    return {kind: (one, eight) for kind, (one, eight) in found.items()}


@pytest.mark.parametrize(
    ("kind", "index_only"), [("jsonl", False), ("jsonl.gz", False), ("jsonl", True)]
)
def test_45_memory_is_bounded_by_the_partition_not_by_the_corpus(
    tmp_path, corpora, kind, index_only
):
    one, eight = corpora[kind]
    options = {"partition_size": MEBIBYTE // 2, "index_only": index_only}
    small = peak(one, tmp_path / "one", **options)
    large = peak(eight, tmp_path / "eight", **options)
    assert large < small + SLACK
    assert len(list((tmp_path / "eight" / "data").iterdir())) >= 25, "it was cut while it was read"


def test_45_the_measure_sees_a_partition_that_is_larger(tmp_path, corpora):
    """A negative control: what is packed together is held together."""
    _, eight = corpora["jsonl"]
    small = peak(eight, tmp_path / "one", partition_size=MEBIBYTE // 2)
    large = peak(eight, tmp_path / "two", partition_size=64 * MEBIBYTE)
    assert large > small + SLACK


@pytest.mark.parametrize("index_only", [False, True])
def test_11_a_document_of_ten_million_tokens_is_split_in_bounded_memory(tmp_path, index_only):
    text = np.random.default_rng(0).integers(97, 123, 10_000_000, dtype=np.uint8)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "' + text.tobytes() + b'"}\n{"text": "b"}\n')
    options = {"partition_size": MEBIBYTE, "index_only": index_only, "add_bos": False}
    taken = peak(path, tmp_path / "out", **options)
    assert taken < 40 * len(text), "a few copies of its tokens, of four bytes each"
    table = pq.read_table(tmp_path / "out" / "data")
    tokens = table["input_ids"].combine_chunks().flatten().to_numpy()
    if index_only:
        assert table["length"].to_pylist() == [10_000_001, 2]
        assert replan(tmp_path / "out", max_length=10_000_001).num_rows == 2
    else:
        lengths = table["input_ids"].combine_chunks().value_lengths().to_numpy()
        assert lengths.max() == 2048
        tokens = _in_order(table, tokens)
    assert np.array_equal(tokens, [*(text.astype(np.int32) + 3), 2, ord("b") + 3, 2])


def _in_order(table, tokens: np.ndarray) -> np.ndarray:
    """The tokens of all fragments by document and offset."""
    names = ("document_starts", "document_ids", "document_offsets")
    starts, ids, offsets = (table[n].combine_chunks().flatten().to_numpy() for n in names)
    rows = table["input_ids"].combine_chunks().value_lengths().to_numpy()
    counts = table["document_starts"].combine_chunks().value_lengths().to_numpy()
    begins = np.repeat(np.cumsum(rows) - rows, counts) + starts
    ends = np.append(begins[1:], len(tokens))
    order = np.lexsort((offsets, ids))
    return np.concatenate([tokens[begins[n] : ends[n]] for n in order])
