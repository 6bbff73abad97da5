"""Start training scripts as users do: in processes, with torchrun or accelerate."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def torchrun(ranks: int) -> list[str]:
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]


def accelerate(ranks: int) -> list[str]:
    """Without ``--multi_gpu`` it starts one process on a machine without GPUs; scripts say cpu."""
    options = {"num_processes": ranks, "num_machines": 1, "mixed_precision": "no"}
    options |= {"dynamo_backend": "no", "main_process_port": 0}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return ["-m", "accelerate.commands.launch", "--multi_gpu", *given]


def environment() -> dict[str, str]:
    path = f"{ROOT}:{ROOT / 'src'}"
    alone = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
    return {**os.environ, **alone, "PYTHONPATH": path}
