"""Other libraries open the output as it is: the folder of its shards, or the output itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from quire.packed import PackedDataset
from tests.corpus.corpora import jsonl, pack, rows, texts


@pytest.fixture(params=["text", "one shard", "labels"])
def packed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Outputs with a list of bad records next to the manifest, and with the mapped form."""
    out = tmp_path / "out"
    if request.param == "labels":
        records = [{"input_ids": [n, 7, 8], "labels": [-100, 7, 8]} for n in range(3, 40)]
        path = jsonl(tmp_path / "a.jsonl", [*records, {"input_ids": [5], "labels": []}])
        pack(path, out, None, partition_size=400, max_bad_records=1, pretokenized=True)
    else:
        size = 500 if request.param == "text" else 1 << 20
        path = jsonl(tmp_path / "a.jsonl", [*texts(40), {"text": None}])
        pack(path, out, partition_size=size, max_bad_records=1)
    PackedDataset(out)
    return out


@pytest.mark.parametrize("how", ["data_dir", "data_files", "folder", "shards"])
def test_datasets_opens_it(packed, how):
    datasets = pytest.importorskip("datasets")
    named = {
        "data_dir": ("parquet", {"data_dir": f"{packed}/data"}),
        "data_files": ("parquet", {"data_files": f"{packed}/data/*.parquet"}),
        "folder": (str(packed), {}),
        "shards": (str(packed / "data"), {}),
    }
    path, more = named[how]
    cache = str(packed.parent / "cache")
    loaded = datasets.load_dataset(path, split="train", cache_dir=cache, **more)
    assert loaded[:] == rows(packed).to_pydict()


def test_polars_opens_the_folder_of_shards(packed):
    polars = pytest.importorskip("polars")
    assert polars.read_parquet(packed / "data").to_dict(as_series=False) == rows(packed).to_pydict()
    lazy = polars.scan_parquet(packed / "data").select("input_ids").collect()
    assert lazy["input_ids"].to_list() == rows(packed)["input_ids"].to_pylist()


def test_pyarrow_opens_the_folder_of_shards(packed):
    assert pq.read_table(packed / "data").to_pydict() == rows(packed).to_pydict()
    found = pyarrow.dataset.dataset(packed / "data", format="parquet").to_table()
    assert found.to_pydict() == rows(packed).to_pydict()
