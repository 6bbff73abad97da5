"""The part of Google's store that pyarrow uses: objects by name, listed, read by ranges."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import urllib.parse
from dataclasses import dataclass, field
from typing import Any

from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

logging.getLogger("werkzeug").setLevel(logging.ERROR)
OBJECT = re.compile(r"(?:/download)?/storage/v1/b/([^/]+)/o/(.+)")
OBJECTS = re.compile(r"(?:/upload)?/storage/v1/b/([^/]+)/o")
BUCKET = re.compile(r"/storage/v1/b/([^/]+)")


@dataclass
class GoogleStore:
    """One bucket in memory, of Google's JSON interface."""

    bucket: str
    objects: dict[str, bytes] = field(default_factory=dict)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    uploads: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.port = self._server.port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environment: Any, start_response: Any) -> Any:
        request = Request(environment)
        path = urllib.parse.unquote(environment["RAW_URI"].partition("?")[0])
        return self._respond(request, path)(environment, start_response)

    def _respond(self, request: Request, path: str) -> Response:
        if path.startswith("/upload"):
            return self._upload(request, path)
        if found := OBJECT.fullmatch(path):
            return self._object(request, *found.groups())
        if found := OBJECTS.fullmatch(path):
            return self._list(request) if found[1] == self.bucket else _missing()
        if (found := BUCKET.fullmatch(path)) and found[1] == self.bucket:
            return _json({"kind": "storage#bucket", "id": self.bucket, "name": self.bucket})
        return _missing()

    def _object(self, request: Request, bucket: str, name: str) -> Response:
        if bucket != self.bucket or name not in self.objects:
            return _missing()
        if request.method == "DELETE":
            del self.objects[name]
            return Response(status=204)
        if request.args.get("alt") != "media":
            return _json(self._about(name))
        data = self.objects[name]
        wanted = request.headers.get("Range", "bytes=0-").removeprefix("bytes=")
        first, _, last = wanted.partition("-")
        stop = min(int(last) + 1 if last else len(data), len(data))
        part = data[int(first) : stop]
        headers = {"Content-Range": f"bytes {first}-{stop - 1}/{len(data)}"}
        return Response(part, status=206 if "Range" in request.headers else 200, headers=headers)

    def _list(self, request: Request) -> Response:
        prefix, delimiter = request.args.get("prefix", ""), request.args.get("delimiter", "")
        names = sorted(name for name in self.objects if name.startswith(prefix))
        if not delimiter:
            return _json({"kind": "storage#objects", "items": [self._about(n) for n in names]})
        rest = {name: name[len(prefix) :] for name in names}
        folders = {f"{prefix}{r.partition('/')[0]}/" for r in rest.values() if delimiter in r}
        items = [self._about(name) for name, r in rest.items() if delimiter not in r]
        return _json({"kind": "storage#objects", "items": items, "prefixes": sorted(folders)})

    def _upload(self, request: Request, path: str) -> Response:
        found = OBJECTS.fullmatch(path)
        if found is None or found[1] != self.bucket:
            return _missing()
        if request.args.get("uploadType") == "multipart":
            return self._whole(request)
        number = request.args.get("upload_id")
        if request.method == "POST":
            number = str(len(self.uploads))
            said = json.loads(request.get_data() or b"{}")
            name = request.args.get("name") or said["name"]
            self.uploads[number] = (name, said.get("metadata", {}), b"")
            place = f"{request.host_url}upload/storage/v1/b/{self.bucket}/o"
            where = f"{place}?uploadType=resumable&upload_id={number}"
            return Response(status=200, headers={"Location": where})
        return self._part(request, str(number))

    def _part(self, request: Request, number: str) -> Response:
        name, metadata, data = self.uploads[number]
        data += request.get_data()
        self.uploads[number] = (name, metadata, data)
        if request.headers.get("Content-Range", "").endswith("/*"):
            headers = {"Range": f"bytes=0-{len(data) - 1}"} if data else {}
            return Response(status=308, headers=headers)
        self.objects[name], self.metadata[name] = data, metadata
        return _json(self._about(name))

    def _whole(self, request: Request) -> Response:
        mark = request.mimetype_params["boundary"].encode()
        _, first, second, _ = request.get_data().split(b"--" + mark)
        said = json.loads(first.partition(b"\r\n\r\n")[2])
        name = request.args.get("name") or said["name"]
        self.objects[name] = second.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        self.metadata[name] = said.get("metadata", {})
        return _json(self._about(name))

    def _about(self, name: str) -> dict[str, object]:
        return {
            "kind": "storage#object",
            "bucket": self.bucket,
            "name": name,
            "size": str(len(self.objects[name])),
            "generation": "1",
            "updated": "2024-01-01T00:00:00.000Z",
            "timeCreated": "2024-01-01T00:00:00.000Z",
            "metadata": self.metadata.get(name, {}),
        }


def _json(value: object) -> Response:
    return Response(json.dumps(value), content_type="application/json")


def _missing() -> Response:
    error = {"error": {"code": 404, "message": "Not Found"}}
    return Response(json.dumps(error), status=404, content_type="application/json")


if __name__ == "__main__":
    # In a process of its own: pyarrow holds Python's lock while it reads from Google's store.
    store = GoogleStore(sys.argv[1])
    store.start()
    print(store.port, flush=True)
    sys.stdin.read()
