"""A store of its own for every test, on one server; folders in memory where there are such."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from quire.storage import stores
from tests.storage.server import Store

MEMORY = Path("/dev/shm")  # noqa: S108 - only a faster place for the same files
NUMBERS = itertools.count()
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTING",
    "AWS_SECRET_ACCESS_KEY": "not-so-secret-key",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture
def tmp_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        inner = Path(folder) / "test"
        inner.mkdir()
        monkeypatch.setenv("XDG_CACHE_HOME", str(Path(folder) / "cache"))
        yield inner


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
