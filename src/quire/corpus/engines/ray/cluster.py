"""A connection to a Ray cluster, and the resources of its tasks."""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from quire.errors import InvalidOption, missing_dependency

_SECONDS_TO_ANSWER = 10.0
_REMEDY = (
    "start one with 'ray start --head' and give its address HOST:6379, or leave out the address to "
    "use only this machine"
)


@dataclass(frozen=True, kw_only=True)
class TaskResources:
    """What Ray reserves for a task."""

    cpus: float
    memory: int | None = None

    def slots(self, nodes: Sequence[dict[str, Any]]) -> int:
        """How many tasks fit on the live nodes.

        >>> node = {"Alive": True, "Resources": {"CPU": 8.0, "memory": 4e9}}
        >>> TaskResources(cpus=1).slots([node])
        8
        >>> TaskResources(cpus=3, memory=3 * 10**9).slots([node])
        1
        """
        return sum(self._slots(node["Resources"]) for node in nodes if node["Alive"])

    def _slots(self, resources: dict[str, float]) -> int:
        by_cpus = math.floor(resources.get("CPU", 0.0) / self.cpus)
        if self.memory is None:
            return by_cpus
        return min(by_cpus, math.floor(resources.get("memory", 0.0) / self.memory))

    def options(self) -> dict[str, float]:
        """The options of `ray.remote`."""
        return {"num_cpus": self.cpus} | ({} if self.memory is None else {"memory": self.memory})

    def __str__(self) -> str:
        memory = "" if self.memory is None else f" and {self.memory} bytes of memory"
        return f"{self.cpus:g} CPU{'' if self.cpus == 1 else 's'}{memory}"


@contextmanager
def connected(address: str | None, init_options: Mapping[str, Any]) -> Iterator[None]:
    """A context with a connection to Ray; a connection that the program already had is kept."""
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
    """The package `ray`, configured to be quiet before it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # send no usage statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a warning
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
            f"{address}\ncall ray.shutdown() first, or leave out the address"
        )


def _is_same(address: str, there: str) -> bool:
    """Whether two addresses mean one cluster; Ray replaces loopback by the node's address."""
    (host, _, port), (known, _, known_port) = address.rpartition(":"), there.rpartition(":")
    return port == known_port and (host == known or host in ("localhost", "127.0.0.1"))


def _require_answer(address: str | None) -> None:
    """Raise at once if nothing listens: Ray would retry for minutes, then end the process."""
    if address is not None and "://" in address:
        raise InvalidOption(
            f"{address} is the address of a Ray client, which may not see the output that it has "
            "to complete\nrun this on a node of the cluster (or with 'ray job submit') and give "
            "its HOST:6379"
        )
    host, colon, port = (address or "").rpartition(":")
    if not colon or not port.isdigit():
        return  # "auto", "local": Ray finds it
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, getattr(error, "strerror", None) or str(error)) from error


def _no_cluster(address: str | None, reason: str) -> InvalidOption:
    first = reason.splitlines()[0]
    return InvalidOption(f"no Ray cluster at {address or 'this machine'}: {first}\n{_REMEDY}")


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keeps the program's SIGTERM handler, which `ray.init` replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
