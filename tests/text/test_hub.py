"""Names of the Hugging Face hub, from a server on this machine, and without any."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.tokenizer_files import folder_of, load

from quire.storage.hub import is_hub_name

NAME, COMMIT = "owner/small", "a" * 40
FILES = {
    path.name: path.read_bytes() for path in folder_of("small-qwen3").iterdir() if path.is_file()
}
PACK = """
import sys, quire
record = {"messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yes"}]}
rows = quire.pack_dataset([record], sys.argv[1], max_length=64)
print(rows.to_pylist()[0]["input_ids"])
"""


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as the client asks for a tokenizer."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        name = self.path.rpartition("/")[2]
        headers = {}
        if self.path.startswith(f"/api/models/{NAME}/tree/"):
            sizes = {name: len(data) for name, data in FILES.items()}
            entries = [
                {"type": "file", "path": name, "size": size, "oid": COMMIT}
                for name, size in sizes.items()
            ]
            body = json.dumps(entries).encode()
        elif self.path.startswith(f"/api/models/{NAME}"):
            names = [{"rfilename": name} for name in FILES]
            body = json.dumps({"id": NAME, "sha": COMMIT, "siblings": names}).encode()
        elif self.path.startswith(f"/{NAME}/resolve/") and name in FILES:
            body = FILES[name]
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha256(body).hexdigest()}"'}
        else:
            self.send_error(404)
            return
        self.send_response(200)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def packed(name: str, home, endpoint: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "NO_PROXY": "*"}
    return subprocess.run(
        [sys.executable, "-c", PACK, name],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip


def test_a_hub_name_has_an_owner_and_is_not_a_local_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("Qwen/Qwen3-8B")
    for other in ("byte", "gpt2", "a/b/c", "/a/b", "./a/b", "../a", "a/tokenizer.json", None, 5):
        assert not is_hub_name(other)
    (tmp_path / "Qwen").mkdir()
    assert not is_hub_name("Qwen/Qwen3-8B")


@pytest.mark.slow
def test_a_tokenizer_is_fetched_by_its_name_and_then_kept(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        fetched = packed(NAME, tmp_path, endpoint)
        missing = packed("owner/unknown", tmp_path, endpoint)
    finally:
        server.shutdown()
        server.server_close()
    talk = [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Yes"}]
    rendered = load("small-qwen3").apply_chat_template(talk, tokenize=False)
    expected = load("small-qwen3")(rendered, add_special_tokens=False)["input_ids"]
    assert fetched.stdout == f"{expected}\n", fetched.stderr
    assert f"cannot be fetched from {endpoint}" in missing.stderr
    assert packed(NAME, tmp_path, endpoint).stdout == fetched.stdout  # the server is gone


@pytest.mark.slow
@pytest.mark.parametrize("is_silent", [False, True])
def test_without_a_hub_the_error_says_so_within_seconds(monkeypatch, request, is_silent):
    """Refused at once, or without an answer, as where the name of a host cannot be looked up."""
    from quire.errors import SourceError
    from quire.storage.hub import require_hub
    from quire.text.hub import local_tokenizer

    endpoint = "http://127.0.0.1:9"
    for name, value in (("HF_ENDPOINT", endpoint), ("NO_PROXY", "*")):
        monkeypatch.setenv(name, value)
    import huggingface_hub  # noqa: F401 - its import takes seconds by itself

    if is_silent:
        waits = threading.Event()
        request.addfinalizer(waits.set)  # or its threads would fail during a later test

        def silent(*_, **__):
            waits.wait(60)
            raise TimeoutError

        monkeypatch.setattr("socket.create_connection", silent)
    start = time.monotonic()
    for ask in (local_tokenizer, partial(require_hub, option="hf_dataset")):
        with pytest.raises(SourceError, match=rf"{endpoint} cannot be reached; connect"):
            ask("nobody/nothing-at-all")
    assert time.monotonic() - start < 2 * 5
