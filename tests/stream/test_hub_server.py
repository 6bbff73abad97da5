"""Datasets of the Hugging Face hub, by name, from a server on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

NAME, COMMIT = "owner/talks", "b" * 40
RECORDS = [{"prompt": f"{n} + {n} =", "completion": f" {2 * n}"} for n in range(40)]
FILES = {
    f"data/train-{part}.jsonl": "".join(
        json.dumps(record) + "\n" for record in RECORDS[part::2]
    ).encode()
    for part in range(2)
}
STREAM = """
import json, sys
from quire.stream import open_stream
options = dict(hf_dataset=sys.argv[1], tokenizer="byte", max_length=32, batch_size=1,
               repeat=False, retry_delay_sec=0.01, max_retries=1, add_bos=False)
with open_stream(**options) as stream:
    first = next(stream)
    state = json.dumps(stream.state_dict())
    rest = list(stream)
    kind, documents = stream.options.record_kind, stream.ledger.check().documents.emitted
with open_stream(**options) as stream:
    stream.load_state_dict(json.loads(state))
    again = list(stream)
assert [b.labels.tolist() for b in again] == [b.labels.tolist() for b in rest]
print(kind, documents)
"""


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as `datasets` and the hub's file system ask for a dataset."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(asked)

    def _answer(self, asked: bytes = b"") -> None:
        path = unquote(urlsplit(self.path).path)
        api = f"/api/datasets/{NAME}"
        if path.startswith((f"{api}/tree/", f"{api}/paths-info/")):
            self._send(json.dumps(self._entries(path, asked)).encode())
        elif path == api or path.startswith(f"{api}/revision/"):
            names = [{"rfilename": name} for name in FILES]
            self._send(json.dumps({"id": NAME, "sha": COMMIT, "siblings": names}).encode())
        elif path.startswith(f"/datasets/{NAME}/resolve/"):
            self._send_file("/".join(path.split("/")[6:]))
        else:
            self._send(b"{}", 404, {"X-Error-Code": "EntryNotFound"})

    def _entries(self, path: str, asked: bytes) -> list[dict[str, object]]:
        names, folder = [*FILES], "/".join(path.split("/")[7:])
        if "/paths-info/" in path:
            wanted = json.loads(asked)["paths"]
            names = [name for name in names if name in wanted]
            folders = ["data"] if "data" in wanted else []
        else:
            names = [name for name in names if name.startswith(folder)]
            folders = [] if folder else ["data"]
        oids = {name: hashlib.sha256(FILES[name]).hexdigest()[:40] for name in names}
        return [
            *({"type": "directory", "path": one, "oid": COMMIT, "size": 0} for one in folders),
            *(
                {"type": "file", "path": name, "size": len(FILES[name]), "oid": oids[name]}
                for name in names
            ),
        ]

    def _send_file(self, name: str) -> None:
        if name not in FILES:
            self._send(b"", 404, {"X-Error-Code": "EntryNotFound"})
            return
        data, status, headers = FILES[name], 200, {"X-Repo-Commit": COMMIT}
        headers["ETag"] = f'"{hashlib.sha256(data).hexdigest()}"'
        if (span := self.headers.get("Range")) is not None:
            start, _, stop = span.removeprefix("bytes=").partition("-")
            whole, last = len(data), int(stop or len(data) - 1)
            data, status = data[int(start) : last + 1], 206
            headers["Content-Range"] = f"bytes {start}-{int(start) + len(data) - 1}/{whole}"
        self._send(data, status, headers)

    def _send(self, body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        known = {"Content-Length": str(len(body)), "Accept-Ranges": "bytes", **(headers or {})}
        for key, value in known.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served():
    """The address of a hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def run(home, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "*"}
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True, text=True, check=False, env=environment, cwd=home,
    )  # fmt: skip


@pytest.mark.slow
def test_a_dataset_is_streamed_by_its_name_and_resumed(tmp_path):
    with served() as endpoint:
        done = run(tmp_path, endpoint, "-c", STREAM, NAME)
        missing = run(tmp_path, endpoint, "-c", STREAM, "owner/unknown")
    assert done.stdout == "prompt_completion 40\n", done.stderr
    last = missing.stderr.splitlines()[-1]
    assert "hf_dataset is 'owner/unknown', which cannot be opened" in missing.stderr, last


@pytest.mark.slow
@pytest.mark.parametrize("named", [f"hf://datasets/{NAME}", NAME])
def test_a_dataset_is_packed_and_verified_by_its_name(tmp_path, named):
    pack = ["-m", "quire", "pack", named, "--tokenizer", "byte", "--max-length", "64"]
    with served() as endpoint:
        done = run(tmp_path, endpoint, *pack, "--out", "packed", "--json")
        verify = ["verify", "packed", "--inputs", named, "--tokenizer", "byte"]
        verified = run(tmp_path, endpoint, "-m", "quire", *verify)
    assert json.loads(done.stdout)["ledger"]["documents"]["emitted"] == 40, done.stderr
    assert "40 compared with the inputs" in verified.stdout, verified.stderr + verified.stdout


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [
    ["pack", NAME, "--out", "packed"],
    ["pack", f"hf://datasets/{NAME}", "--out", "packed"],
    ["stream", "--hf-dataset", NAME, "--batch-size", "1"],
])  # fmt: skip
def test_without_a_hub_commands_say_so_within_seconds(tmp_path, arguments):
    run(tmp_path, "http://127.0.0.1:9", "-c", "import datasets, huggingface_hub")  # warm files
    start = time.monotonic()
    done = run(
        tmp_path, "http://127.0.0.1:9", "-m", "quire", *arguments,
        "--tokenizer", "byte", "--max-length", "64",
    )  # fmt: skip
    assert done.returncode == 2
    assert "http://127.0.0.1:9 cannot be reached" in done.stderr
    assert time.monotonic() - start < 60  # seconds on a quiet machine; without a check, minutes
