"""A Ray cluster to run tasks on: one that is there, or one of this machine's own."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from quire.errors import InvalidOption, missing_dependency

_SECONDS_TO_ANSWER = 10.0
_REMEDY = (
    "start one with 'ray start --head' and name it as HOST:6379, or leave the address out to use "
    "this machine alone"
)


@contextmanager
def connected(address: str | None, init_options: Mapping[str, Any]) -> Iterator[None]:
    """Ray is connected while the block runs; a program's own connection stays behind it."""
    ray = imported_ray()
    if ray.is_initialized():
        _require_same(ray, address)
        yield
        return
    _require_answer(address or os.environ.get("RAY_ADDRESS"))
    with _own_sigterm():
        _connect(ray, address, init_options)
    try:
        yield
    finally:
        ray.shutdown()


def imported_ray() -> Any:  # noqa: ANN401 - a package without types
    """The package `ray`, told to be quiet before it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to others
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # else it warns
    try:
        import ray
    except ImportError:
        raise missing_dependency("ray", "the engine 'ray'", "ray") from None
    return ray


def _connect(ray: Any, address: str | None, init_options: Mapping[str, Any]) -> None:  # noqa: ANN401
    quiet = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    try:
        ray.init(address=address, **{**quiet, **init_options})
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, str(error).strip() or type(error).__name__) from error


def _require_same(ray: Any, address: str | None) -> None:  # noqa: ANN401
    there = ray.get_runtime_context().gcs_address
    if address not in (None, "auto") and not _is_same(address, there):
        raise InvalidOption(
            f"this program is connected to the Ray cluster at {there}, but the address is "
            f"{address}\nsay ray.shutdown() first, or leave the address out"
        )


def _is_same(address: str, there: str) -> bool:
    """Whether two addresses name one cluster; Ray says the node's own for a loopback."""
    (host, _, port), (known, _, known_port) = address.rpartition(":"), there.rpartition(":")
    return port == known_port and (host == known or host in ("localhost", "127.0.0.1"))


def _require_answer(address: str | None) -> None:
    """Raise at once where nobody listens: Ray itself would try for minutes, and end the process."""
    if address is not None and "://" in address:
        raise InvalidOption(
            f"{address} is the address of a Ray client, which may not see the output that it is to "
            "complete\nrun this on a node of the cluster (or with 'ray job submit') and name its "
            "HOST:6379"
        )
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", "local": Ray looks by itself
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, getattr(error, "strerror", None) or str(error)) from error


def _no_cluster(address: str | None, reason: str) -> InvalidOption:
    first = reason.splitlines()[0]
    return InvalidOption(f"no Ray cluster at {address or 'this machine'}: {first}\n{_REMEDY}")


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keeps what this program does at SIGTERM, which `ray.init` replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
