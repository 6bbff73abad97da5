"""One of two ranks whose metrics per source are summed; started by a test with torchrun."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from quire.training import SourceMetrics


def values(rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Losses, whether each target was predicted, and its source; source 2 is only of rank 1."""
    random = np.random.default_rng(rank)
    sources = random.integers(-1, 2 + rank, 50)
    return random.random(50), random.random(50) < 0.5, sources


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    metrics = SourceMetrics(names=["a", "b", "c", "unseen"])
    losses, correct, sources = map(torch.from_numpy, values(rank))
    for part in (slice(0, 20), slice(20, 50)):
        metrics.add(losses[part], correct[part], sources[part])
    first = metrics.take()
    if rank == 0:  # the other rank has nothing to count, and takes part
        metrics.add(losses[:5], correct[:5], torch.zeros(5, dtype=torch.int64))
    found = [first, metrics.take(), metrics.take()]
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
