"""Tasks that write to an S3-compatible store: the bytes of a local output, also after deaths."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import boto3
import pytest

from quire.corpus.engines.ray import RayEngine
from tests.cluster.jobs import DiesAfterItsCommit, FaultyEngine
from tests.storage.server import Store


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def bucket(store, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    client = boto3.client("s3", endpoint_url=store.endpoint, region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    return client


def test_fault_47_workers_die_after_their_commits_to_a_store(
    cluster, corpus, undisturbed, store, bucket, tmp_path
):
    # The nodes' environment knows nothing of the store: all is in the URI, which tasks are told.
    at = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{store.port}"
    out = f"s3://testing:testing@bucket/packed?{at}"
    engine = FaultyEngine(fault=DiesAfterItsCommit, marks=tmp_path / "marks", engine=RayEngine())
    corpus.pack(out, engine=engine)
    assert len(list((tmp_path / "marks").iterdir())) == 2
    assert _digests(bucket) == undisturbed


def _digests(client) -> dict[str, str]:
    found = client.list_objects_v2(Bucket="bucket", Prefix="packed/")["Contents"]
    names = [item["Key"] for item in found if not item["Key"].endswith("/")]
    return {
        name.removeprefix("packed/"): hashlib.sha256(
            client.get_object(Bucket="bucket", Key=name)["Body"].read()
        ).hexdigest()
        for name in names
    }
