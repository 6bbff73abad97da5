"""An output in a store is recounted as one on a disk is."""

from __future__ import annotations

import pytest

from quire.errors import CorruptFile, StorageError
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.corpus.corpora import pack
from tests.storage.kinds import every_kind, put_all

NAMES = ("e.parquet", "f.arrow", "g.txt")


@pytest.fixture(params=[False, True], ids=["rows", "index"])
def both(request, tmp_path, bucket, client):
    """The URIs of inputs and output."""
    inputs = put_all(client, bucket, every_kind(tmp_path / "corpus"), "in")
    pack(inputs, f"s3://{bucket}/out", partition_size=5000, index_only=request.param)
    return inputs, f"s3://{bucket}/out"


def test_an_intact_output_and_its_inputs_are_verified(both):
    inputs, out = both
    report = verify_inputs(verify_output(out), [inputs], "byte")
    assert report.problems == []
    assert report.compared and report.shards > 3
    assert f'"path": "{out}"' in report.to_json()


def test_inputs_may_be_globs_and_files(both):
    inputs, out = both
    named = [f"{inputs}/*.jsonl*", f"{inputs}/**/b.jsonl", *(f"{inputs}/{n}" for n in NAMES)]
    assert verify_inputs(verify_output(out), named, "byte").ok


def test_damage_is_found(both, bucket, client):
    _, out = both
    key = "out/data/shard-00001-000.parquet"
    good = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    client.put_object(Bucket=bucket, Key=key, Body=good[:99] + bytes([good[99] ^ 1]) + good[100:])
    client.put_object(Bucket=bucket, Key="out/data/stranger.parquet", Body=b"1")
    client.put_object(Bucket=bucket, Key="out/.quire/run.json", Body=b"{}")
    problems = "\n".join(verify_output(out).problems)
    assert "shard-00001-000.parquet has changed since it was written" in problems
    assert "data/stranger.parquet exists but is not listed in the manifest" in problems
    assert ".quire exists" in problems
    client.delete_object(Bucket=bucket, Key=key)
    assert any("is missing" in problem for problem in verify_output(out).problems)


def test_a_store_that_cannot_be_read_is_not_reported_as_damage(both, store):
    _, out = both
    store.failing = lambda request: 403 if "/data/" in request.path else None
    with pytest.raises(StorageError, match="denies access"):
        verify_output(out)


def test_a_folder_that_is_not_an_output_is_named(bucket, store):
    with pytest.raises(CorruptFile, match=r"has no manifest\.json"):
        verify_output(f"s3://{bucket}/none")
    with pytest.raises(StorageError, match="there is no bucket"):
        verify_output("s3://not-any-bucket/none")
