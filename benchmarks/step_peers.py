"""What other RL systems plan for a step, by their own functions, from their wheels or checkouts.

`QUIRE_PEERS` names folders, separated as in `PATH`; each peer's module is looked for in all of them
and in their `src`. Packages that a module imports but that planning does not need are replaced by
empty modules.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch

COST = (24576, 1)
"""verl's cost of a token and of a squared length."""

Rows = list[list[list[int]]]
"""Sequences by rank and micro-step."""
Planner = Callable[[np.ndarray, int, int], Rows]
"""From lengths, the budget and the number of ranks."""

_ROOTS = [Path(root) for root in os.environ.get("QUIRE_PEERS", "").split(os.pathsep) if root]

_MODULES = {
    "verl": "verl/utils/seqlen_balancing.py",
    "slime": "slime/utils/dp_schedule.py",
    "NeMo-RL": "nemo_rl/data/packing/algorithms.py",
    "prime-rl": "prime_rl/trainer/batch.py",
    "AReaL": "areal/utils/seqpack.py",
}


def find_peers() -> tuple[dict[str, ModuleType], list[str]]:
    """The modules of the peers that are there, and the names of those that are not."""
    found = {name: root for name in _MODULES if (root := _root(_MODULES[name])) is not None}
    modules = {f"{name} {_version(found[name])}": _load(name, found[name]) for name in found}
    return modules, [name for name in _MODULES if name not in found]


def planners(modules: dict[str, ModuleType]) -> dict[str, Planner]:
    """A planner for each peer, by its name and version."""
    steps = {"verl": verl_step, "slime": slime_step, "NeMo-RL": nemo_step, "prime-rl": prime_step}
    steps |= {"AReaL": areal_step}
    return {name: partial(steps[name.split()[0]], module) for name, module in modules.items()}


def verl_step(peer: ModuleType, lengths: np.ndarray, budget: int, ranks: int) -> Rows:
    costs = peer.calculate_workload(torch.as_tensor(lengths)).tolist()
    divide = peer.get_seqlen_balanced_partitions
    shares = divide(costs, ranks, equal_size=True)
    least = max(-(-int(lengths[share].sum()) // budget) for share in shares)
    for steps in count(least):
        rows = [
            [[share[i] for i in part] for part in divide([costs[i] for i in share], steps, False)]
            for share in shares
        ]
        if all(lengths[row].sum() <= budget for rank in rows for row in rank):
            break
    for rank in rows:
        rank.sort(key=lambda row: -sum(costs[i] for i in row))
    return rows


def slime_step(peer: ModuleType, lengths: np.ndarray, budget: int, ranks: int) -> Rows:
    peer._calculate_workloads = lambda parts, _: [
        COST[0] * part + COST[1] * part**2 for part in parts
    ]
    arguments = SimpleNamespace(
        use_dynamic_batch_size=True,
        max_tokens_per_gpu=budget,
        balance_data=True,
        balance_by_flops=False,  # with it, the budget would not be kept
    )
    parallel = {
        "dp_size": ranks,
        "cp_size": 1,
        "vpp_size": 1,
        "microbatch_group_size_per_vp_stage": 1,
    }
    number = len(lengths)
    partitions, micro_batches, _, _ = peer.build_dp_schedule(
        arguments,
        parallel,
        lengths.tolist(),
        global_batch_size=number,
        rollout_indices=list(range(number)),
    )
    return [
        [[mine[index] for index in row] for row in rows]
        for mine, rows in zip(partitions, micro_batches, strict=True)
    ]


def nemo_step(peer: ModuleType, lengths: np.ndarray, budget: int, ranks: int) -> Rows:
    packer = peer.get_packer(
        "MODIFIED_FIRST_FIT_DECREASING", budget, min_bin_count=ranks, bin_count_multiple=ranks
    )
    bins = packer.pack(lengths.tolist())
    return [bins[rank::ranks] for rank in range(ranks)]


def prime_step(peer: ModuleType, lengths: np.ndarray, budget: int, ranks: int) -> Rows:
    def cost(parts: list[int]) -> int:
        return sum(COST[0] * part + COST[1] * part**2 for part in parts)

    samples = [
        SimpleNamespace(input_ids=range(length), number=number, mm_kwargs=None, routed_experts=None)
        for number, length in enumerate(lengths.tolist())
    ]
    # A row is not copied together here: only the numbers of its samples are needed.
    peer._materialize_bin = lambda row: SimpleNamespace(
        sequence_lengths=[len(sample.input_ids) for sample in row.samples],
        numbers=[sample.number for sample in row.samples],
    )
    rows = peer.packed_samples_into_micro_bs(samples, budget, ranks, cost)
    by_rank = peer._distribute_group(rows, ranks, cost)
    return [[row.numbers for row in rank] for rank in by_rank]


def areal_step(
    peer: ModuleType, lengths: np.ndarray, budget: int, ranks: int, group: int = 1
) -> Rows:
    tokens = lengths.reshape(-1, group).sum(axis=1)
    shares = [
        np.concatenate([np.arange(group * first, group * (first + 1)) for first in part])
        for part in peer.balanced_greedy_partition(tokens.tolist(), ranks)
    ]
    steps, most = 1, 0
    while steps != most:  # as its ranks agree on the number of micro-batches
        steps = max(steps, most)
        found = [peer.ffd_allocate(lengths[share].tolist(), budget, steps) for share in shares]
        most = max(map(len, found))
    return [
        [share[row].tolist() for row in sorted(map(sorted, rows))]
        for share, rows in zip(shares, found, strict=True)
    ]


def _root(path: str) -> Path | None:
    for root in (folder for given in _ROOTS for folder in (given, given / "src")):
        if (root / path).exists():
            return root
    return None


def _version(root: Path) -> str:
    """That of a wheel, or the commit of a checkout."""
    for information in root.glob("verl-*.dist-info"):
        return information.name.split("-")[1].removesuffix(".dist")
    command = ["git", "-C", str(root), "rev-parse", "--short=9", "HEAD"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return answer.stdout.strip() or "of an unknown version"


def _load(name: str, root: Path) -> ModuleType:
    """The peer's module, without the rest of its package, which needs many others."""
    nothing = SimpleNamespace(getLogger=lambda _: None)
    parts: dict[str, dict[str, Any]] = {
        "verl": {
            "verl": {},
            "verl.protocol": {"DataProto": object},
            "verl.utils": {"tensordict_utils": SimpleNamespace(index_select_tensor_dict=_selected)},
            "verl.utils.device": {"get_device_name": lambda: "cpu"},
        },
        "prime-rl": {
            "prime_rl.transports.rollouts.types": dict.fromkeys(
                ("EncodedTensor", "MicroBatch", "RoutedExperts", "TrainingSample"), object
            ),
        },
        "AReaL": {
            "numba": {"njit": lambda function: function},
            "areal.utils": {"logging": nothing},
        },
    }.get(name, {})
    for part, contents in parts.items():
        module = ModuleType(part)
        vars(module).update(contents)
        sys.modules[part] = module
    path = root / _MODULES[name]
    sys.path.insert(0, str(root))
    try:
        spec = importlib.util.spec_from_file_location(f"peer_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(root))
        for part in parts:
            del sys.modules[part]
    return module


def _selected(batch: dict[str, torch.Tensor], samples: list[int]) -> dict[str, torch.Tensor]:
    """Some samples of a batch, in place of verl's function for batches of another package."""
    return {
        name: torch.nested.as_nested_tensor([values[n] for n in samples], layout=torch.jagged)
        if values.is_nested
        else values[samples]
        for name, values in batch.items()
    }
