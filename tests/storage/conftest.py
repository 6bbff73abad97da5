"""A separate store for every test, on one server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from quire.storage import stores
from tests.storage.server import Store

NUMBERS = itertools.count()
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTING",
    "AWS_SECRET_ACCESS_KEY": "not-so-secret-key",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))


@pytest.fixture(scope="session")
def server() -> Iterator[Store]:
    store = Store()
    store.start()
    yield store
    store.stop()


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in (KEYS | {"AWS_ENDPOINT_URL": server.endpoint}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("quire.storage.stores._ATTEMPTS", 2)
    stores._opened.cache_clear()
    server.requests.clear()
    yield server
    stores._opened.cache_clear()
    server.failing = lambda request: None


@pytest.fixture
def client(store: Store) -> Any:
    return boto3.client("s3", endpoint_url=store.endpoint, region_name="us-east-1")


@pytest.fixture
def bucket(store: Store, client: Any) -> str:
    """The name of a new bucket."""
    name = f"bucket-{next(NUMBERS)}"
    client.create_bucket(Bucket=name)
    store.requests.clear()
    return name


@pytest.fixture
def objects(client: Any, bucket: str) -> Any:
    """Everything in the bucket, by name, without the empty objects that stand for folders."""

    def read(below: str = "") -> dict[str, bytes]:
        found = {}
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=below):
            for item in page.get("Contents", []):
                if not item["Key"].endswith("/"):
                    body = client.get_object(Bucket=bucket, Key=item["Key"])["Body"]
                    found[item["Key"].removeprefix(below)] = body.read()
        return found

    return read
