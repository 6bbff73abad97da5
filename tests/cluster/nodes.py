"""A Ray cluster of several raylets on this machine, whose nodes can be added and killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NODE = {"num_cpus": 1, "object_store_memory": 150_000_000}
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@contextmanager
def several_nodes(count: int) -> Iterator[Any]:
    """A cluster of this many nodes, one CPU each, to which this process is connected."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    before = dict(os.environ)
    os.environ.update(SETTINGS, PYTHONPATH=paths)  # workers find the tests' own jobs there
    import ray

    cluster = start_nodes(count)
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def start_nodes(count: int) -> Any:
    """A cluster to which this process is not connected."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    for _ in range(count - 1):
        cluster.add_node(**NODE)
    return cluster


def kill_node(cluster: Any, node: Any) -> None:
    """SIGKILL to the node's raylet; its workers end when they notice."""
    cluster.remove_node(node, allow_graceful=False)
