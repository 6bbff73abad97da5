"""A real S3-compatible server on this machine, which counts requests and can be made to fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.ERROR)
CUT = -1
"""Instead of a status: the connection ends in the middle of the response."""
REASONS = {403: "AccessDenied", 500: "InternalError", 503: "SlowDown"}


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: str
    range: str | None

    @property
    def num_bytes(self) -> int:
        first, _, last = (self.range or "").removeprefix("bytes=").partition("-")
        return int(last) - int(first) + 1 if last else 0


@dataclass
class Store:
    """The server; ``failing`` returns the status with which a request fails, or None."""

    requests: list[Request] = field(default_factory=list)
    failing: Callable[[Request], int | None] = lambda request: None
    after: Callable[[Request], None] = lambda request: None
    """Called after a request was processed, before the response."""

    def start(self) -> None:
        self._inner = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self, threaded=True)
        self.port = self._server.port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __call__(self, environment: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(
            environment["REQUEST_METHOD"],
            environment["PATH_INFO"],
            environment.get("QUERY_STRING", ""),
            environment.get("HTTP_RANGE"),
        )
        status = self.failing(request)
        if status == CUT:
            answer = b"".join(self._inner(environment, start_response))
            return [answer[: len(answer) // 2]]
        if status is not None:
            body = f"<Error><Code>{REASONS[status]}</Code><Message>no</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            start_response(f"{status} {REASONS[status]}", headers)
            return [body] if request.method != "HEAD" else [b""]
        self.requests.append(request)
        answer = list(self._inner(environment, start_response))
        self.after(request)
        return answer

    def reads(self, part: str) -> list[Request]:
        """The requests for content of objects whose path holds this."""
        return [r for r in self.requests if r.method == "GET" and part in r.path]

    def bytes_read(self, part: str) -> int:
        return sum(request.num_bytes for request in self.reads(part))
