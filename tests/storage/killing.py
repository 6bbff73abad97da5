"""Kill the installed command while it packs into a store; the objects must stay the same.

The store itself kills it, before or after a request that changes something: so every moment
at which the output can be half done is met. `python -m tests.storage.killing --kills 300` does it
hundreds of times; the tests do it a little.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3

from quire.verify.output import verify_output
from tests.corpus.corpora import jsonl, texts
from tests.faults.command_lines import command_line
from tests.storage.conftest import KEYS
from tests.storage.server import Request, Store

QUIRE = Path(sys.executable).with_name("quire")
FORMS = {"rows": (), "index": ("--index-only",), "workers": ("--workers", "2")}
LAST_CHANGE = 26
"""A run of 20 partitions makes some 45 changes; it is killed at one of its first 26."""


class KillLoop:
    """Chains of kills: each continues until a run completes, then its objects are compared."""

    def __init__(self, store: Store, folder: Path, seed: int = 0) -> None:
        self._store, self._folder, self._choose = store, folder, random.Random(seed)
        self._client = boto3.client("s3", endpoint_url=store.endpoint, region_name="us-east-1")
        self._bucket = f"killing-{seed}-{os.getpid()}"
        self._client.create_bucket(Bucket=self._bucket)
        records = [*texts(150), {"text": None}, *texts(40, seed=1)]
        corpus = jsonl(folder / "corpus.jsonl", records)
        self._client.upload_file(str(corpus), self._bucket, "in/corpus.jsonl")
        self._inputs = f"s3://{self._bucket}/in"
        (folder / "tmp").mkdir()
        self._expected = {form: self._undisturbed(form, corpus) for form in FORMS}
        self.kills: Counter[str] = Counter()
        self.chains: Counter[str] = Counter()

    def run(self, kills: int, forms: tuple[str, ...] = tuple(FORMS)) -> Iterator[int]:
        """Kill at least this often; yields the count after every chain."""
        number = 0
        while self.kills.total() < kills:
            form = forms[number % len(forms)]
            self._chain(form, f"out-{number}")
            self.chains[form] += 1
            number += 1
            yield self.kills.total()

    def counts(self) -> dict[str, object]:
        """The counts so far; an output that differs raises an error and is not counted."""
        return {
            "store": "S3-compatible server (moto)",
            "kills": dict(self.kills),
            "kills_in_all": self.kills.total(),
            "outputs": dict(self.chains),
            "byte_equal_in_all": self.chains.total(),
        }

    def _chain(self, form: str, name: str) -> None:
        uri = f"s3://{self._bucket}/{name}"
        while self._is_killed(self._pack(self._inputs, uri, form)):
            found = self._objects(f"{name}/")
            shards = {n for n in found if n.startswith(("data/", "plans/"))}
            expected = self._expected[form]
            assert {n: found[n] for n in shards} == {n: expected[n] for n in shards}
        assert self._objects(f"{name}/") == self._expected[form]
        assert verify_output(uri).problems == []
        left = [path.name for path in (self._folder / "tmp").glob("quire-transfer-*")]
        assert not left, "temporary files of killed processes are removed by later ones"

    def _is_killed(self, arguments: list[str]) -> bool:
        moment = self._choose.choice(["before", "after"])
        left = self._choose.randint(1, LAST_CHANGE)
        process: subprocess.Popen[str] | None = None

        def kill_at_last(request: Request) -> int | None:
            nonlocal left
            left -= request.method not in ("GET", "HEAD")
            if left == 0 and process is not None:
                left -= 1
                process.send_signal(signal.SIGKILL)
                process.wait()
                return 500
            return None

        if moment == "before":
            self._store.failing = kill_at_last
        else:
            self._store.after = kill_at_last
        process = self._started(arguments)
        error = process.communicate()[1]
        self._store.failing = self._store.after = lambda request: None
        assert process.returncode in (0, -signal.SIGKILL), error
        self.kills[moment] += process.returncode != 0
        return process.returncode != 0

    def _started(self, arguments: list[str]) -> subprocess.Popen[str]:
        environment = KEYS | {"AWS_ENDPOINT_URL": self._store.endpoint}
        environment["TMPDIR"] = str(self._folder / "tmp")
        return subprocess.Popen(
            [QUIRE, *arguments],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _undisturbed(self, form: str, corpus: Path) -> dict[str, bytes]:
        out = self._folder / f"undisturbed-{form}"
        process = self._started(self._pack(str(corpus.parent / corpus.name), str(out), form))
        error = process.communicate()[1]
        assert process.returncode == 0, error
        found = {p.relative_to(out).as_posix(): p for p in out.rglob("*") if p.is_file()}
        return {name: path.read_bytes() for name, path in found.items()}

    def _pack(self, inputs: str, out: str, form: str) -> list[str]:
        fixed = ["pack", inputs, "--out", out, "--tokenizer", "byte", "--resume"]
        sizes = ["--max-length", "16", "--partition-size", "400", "--max-bad-records", "1"]
        return [*fixed, *sizes, *FORMS[form]]

    def _objects(self, below: str) -> dict[str, bytes]:
        pages = self._client.get_paginator("list_objects_v2")
        found: dict[str, Any] = {}
        for page in pages.paginate(Bucket=self._bucket, Prefix=below):
            for item in page.get("Contents", []):
                if not item["Key"].endswith("/"):
                    body = self._client.get_object(Bucket=self._bucket, Key=item["Key"])["Body"]
                    found[item["Key"].removeprefix(below)] = body.read()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="Write the counts there.")
    arguments = parser.parse_args()
    store = Store()
    store.start()
    os.environ.update(KEYS | {"AWS_ENDPOINT_URL": store.endpoint})
    with tempfile.TemporaryDirectory() as folder:
        loop = KillLoop(store, Path(folder), arguments.seed)
        for kills in loop.run(arguments.kills):
            print(f"{kills} kills, {loop.chains.total()} outputs as undisturbed", flush=True)
    store.stop()
    text = json.dumps({"command": command_line("tests.storage.killing"), **loop.counts()}, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
