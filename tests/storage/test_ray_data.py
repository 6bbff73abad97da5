"""Packed rows over `ray.data`: the same rows, and nothing is read that was not requested."""

from __future__ import annotations

import sys
import tempfile

import pytest

from quire.errors import MissingDependency
from quire.packed import PackedDataset
from tests.corpus.corpora import jsonl, pack, texts
from tests.storage.conftest import KEYS

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of Ray, not ours to mend


@pytest.fixture(scope="module")
def cluster(server):
    pytest.importorskip("ray")
    import ray
    import ray.data

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in (KEYS | {"AWS_ENDPOINT_URL": server.endpoint}).items():
            patch.setenv(name, value)  # workers have the environment of their node
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        resources = {"num_cpus": 1, "object_store_memory": 100_000_000}
        ray.init(address="local", include_dashboard=False, _temp_dir=folder, **resources)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        yield
        ray.shutdown()


@pytest.fixture
def corpus(tmp_path):
    return jsonl(tmp_path / "corpus.jsonl", texts(600))


def rows_of(dataset):
    return [{name: row[name].tolist() for name in dataset.columns} for row in dataset]


def taken(rows):
    return [{name: list(values) for name, values in row.items()} for row in rows]


@pytest.mark.parametrize("index_only", [False, True], ids=["rows", "index"])
def test_the_rows_are_those_of_the_dataset(cluster, tmp_path, bucket, store, corpus, index_only):
    for out in (tmp_path / "out", f"s3://{bucket}/out"):
        pack(corpus, out, partition_size=8000, index_only=index_only)
        for columns in (None, ["document_starts", "document_ids"]):
            dataset = PackedDataset(out, columns=columns)
            assert taken(dataset.ray_data().take_all()) == rows_of(dataset)


def test_only_wanted_columns_and_shards_are_read(cluster, bucket, store, corpus):
    out = f"s3://{bucket}/out"
    result = pack(corpus, out, partition_size=8000, max_length=512)
    shards = result.manifest["shards"]
    size = sum(shard["bytes"] for shard in shards)
    assert len(shards) > 3

    store.requests.clear()
    starts = PackedDataset(out, columns=["document_starts"]).ray_data()
    assert starts.count() == result.num_rows
    assert not store.reads("/data/"), "the manifest knows how many rows there are"

    everything = PackedDataset(out).ray_data().take_all()
    read_all = store.bytes_read("/data/")
    store.requests.clear()
    assert len(starts.take_all()) == len(everything)
    assert 0 < store.bytes_read("/data/") < read_all
    assert read_all <= 2 * size

    store.requests.clear()
    one = PackedDataset(out).ray_data().limit(1).take_all()
    assert len(one) == 1
    assert len({request.path for request in store.reads("/data/")}) < len(shards)


@pytest.mark.parametrize("index_only", [False, True], ids=["rows", "index"])
def test_a_relative_path_is_the_same_dataset_in_every_task(
    cluster, tmp_path, corpus, monkeypatch, index_only
):
    """Tasks have another working directory than the driver."""
    monkeypatch.chdir(tmp_path)
    pack(corpus, "out", partition_size=8000, index_only=index_only)
    dataset = PackedDataset("out", columns=["document_starts"], cache_dir="cache")
    assert taken(dataset.ray_data().take_all()) == rows_of(dataset)


def test_missing_ray_is_named(tmp_path, corpus, monkeypatch):
    pack(corpus, tmp_path / "out")
    for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'quire-pack\[ray\]'"):
        PackedDataset(tmp_path / "out").ray_data()
