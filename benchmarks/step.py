"""One training step of an RL system: rollouts of log-normal(8.6, 0.8) tokens, cut to the budget,
seeds from 0 on, planned for all ranks. Micro-steps are the mean over the seeds, the bound is the
mean of the proven one. Imbalance is the most expensive rank's cost over the mean, summed over
micro-steps, with verl's cost (24,576 a token + the squared length). Times are CPU time.

The peers' modules are read from the folder `QUIRE_PEERS`, those that are there: verl's wheel
(`pip download --no-deps verl==0.9.1`, unpacked), slime and NeMo-RL from clones. verl's
`get_seqlen_balanced_partitions` first gives every rank as many rollouts, then divides each rank's
into micro-batches, one more on every rank until all keep the budget, as its
`rearrange_micro_batches` does. slime's `build_dp_schedule` balances with the same cost. NeMo-RL's
bins (`MODIFIED_FIRST_FIT_DECREASING`) are dealt round-robin, as its `shard_by_batch_size` does.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import torch

import quire
from benchmarks.harness import Table, best_of_interleaved, milliseconds, ratio

TITLE = "One training step"
COST = (24576, 1)
SEEDS = 20

PEERS = Path(os.environ.get("QUIRE_PEERS", "no-peers"))

Rows = list[list[list[int]]]
"""Sequences by rank and micro-step."""
Planner = Callable[[np.ndarray, int, int], Rows]
"""From lengths, the budget and the number of ranks."""


def run() -> list[Table]:
    verl = _verl()
    peers: dict[str, Planner] = {}
    if verl is not None:
        peers["verl 0.9.1"] = partial(_verl_step, verl)
    if (PEERS / "slime/utils/dp_schedule.py").exists():
        peers["slime"] = _slime_step
    if (PEERS / "nemo_rl/data/packing/algorithms.py").exists():
        peers["NeMo-RL"] = partial(_nemo_step, _module("nemo_rl/data/packing/algorithms.py"))
    return [_balance(peers), _partitions(verl), _values()]


def _balance(peers: dict[str, Planner]) -> Table:
    table = Table(
        "Micro-steps and balance",
        ["rollouts, ranks, budget", "planner", "micro-steps (bound)", "imbalance", "CPU time"],
    )
    for number, ranks, budget, seeds in (
        (512, 8, 16384, SEEDS),
        (512, 8, 8192, SEEDS),
        (4096, 128, 16384, 10),
    ):
        steps = [_lengths(number, budget, seed) for seed in range(seeds)]
        bounds = [-(-quire.lower_bound(step, budget) // ranks) for step in steps]

        planners: dict[str, Planner] = {"quire": _quire_step}
        if number == 512:  # the others take minutes for more
            planners |= peers
        for name, plan in planners.items():
            found, seconds = [], []
            for lengths in steps:
                start = time.process_time()
                found.append(plan(lengths, budget, ranks))
                seconds.append(time.process_time() - start)
            uneven = [_imbalance(rows, lengths) for rows, lengths in zip(found, steps, strict=True)]
            table.add(
                f"{number:,}, {ranks}, {budget:,}",
                name,
                f"{np.mean([len(rows[0]) for rows in found]):.2f} ({np.mean(bounds):.2f})",
                f"{np.mean(uneven):.4f}",
                milliseconds(float(np.mean(seconds))),
            )
    return table


def _partitions(peer: ModuleType | None) -> Table:
    """The function that RL systems have copied from each other, alone."""
    from quire.compat.reinforcement import get_seqlen_balanced_partitions

    table = Table(
        "Largest sum over the mean, get_seqlen_balanced_partitions",
        ["rollouts, partitions", "planner", "largest over mean", "CPU time"],
    )
    planners = {"quire": get_seqlen_balanced_partitions}
    if peer is not None:
        planners["verl 0.9.1"] = peer.get_seqlen_balanced_partitions
    for number, parts in ((64, 8), (1024, 64), (4096, 128)):
        lengths = _lengths(number, 16384, 0)
        for name, divide in planners.items():
            start = time.process_time()
            found = divide(lengths.tolist(), parts, False)
            seconds = time.process_time() - start
            sums = np.array([lengths[part].sum() for part in found])
            table.add(
                f"{number:,}, {parts}",
                name,
                f"{sums.max() / sums.mean():.5f}",
                milliseconds(seconds),
            )
    return table


def _values() -> Table:
    table = Table(
        "Moving a million tokens, against one plain copy of them",
        ["values", "gather", "unpack"],
    )
    lengths = _lengths(160, 16384, 0)
    lengths = lengths[np.cumsum(lengths) <= 1_000_000]
    plan = quire.pack_step(lengths, max_length=16384, num_ranks=8)
    total = int(lengths.sum())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for name, values in (
        ("torch, 64 bits", torch.arange(total)),
        ("torch, 32 bits", torch.rand(total)),
        ("NumPy, 64 bits", np.arange(total)),
    ):
        rows = plan.gather(values)
        copy = values.copy if isinstance(values, np.ndarray) else values.clone
        plain, gather, unpack = best_of_interleaved(
            15,
            copy,
            lambda values=values: plan.gather(values),
            lambda rows=rows: plan.unpack(rows),
        )
        table.add(name, ratio(gather / plain), ratio(unpack / plain))
    torch.set_num_threads(threads)
    return table


def _lengths(number: int, budget: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).lognormal(8.6, 0.8, number).astype(np.int64)
    return drawn.clip(1, budget)


def _imbalance(rows: Rows, lengths: np.ndarray) -> float:
    costs = COST[0] * lengths + COST[1] * lengths**2
    by_row = np.array([[costs[row].sum() for row in rank] for rank in rows])
    return float(by_row.max(axis=0).sum() / by_row.mean(axis=0).sum())


def _quire_step(lengths: np.ndarray, budget: int, ranks: int) -> Rows:
    plan = quire.pack_step(lengths, max_length=budget, num_ranks=ranks, cost=COST)
    micro_steps = range(plan.num_micro_steps)
    return [[plan.row(r, m).tolist() for m in micro_steps] for r in range(ranks)]


def _slime_step(lengths: np.ndarray, budget: int, ranks: int) -> Rows:
    sys.path.insert(0, str(PEERS))
    from slime.utils import dp_schedule

    sys.path.pop(0)
    dp_schedule._calculate_workloads = lambda parts, _: [
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
    partitions, micro_batches, _, _ = dp_schedule.build_dp_schedule(
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


def _nemo_step(peer: ModuleType, lengths: np.ndarray, budget: int, ranks: int) -> Rows:
    packer = peer.get_packer(
        "MODIFIED_FIRST_FIT_DECREASING", budget, min_bin_count=ranks, bin_count_multiple=ranks
    )
    bins = packer.pack(lengths.tolist())
    return [bins[rank::ranks] for rank in range(ranks)]


def _verl_step(peer: ModuleType, lengths: np.ndarray, budget: int, ranks: int) -> Rows:
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


def _verl() -> ModuleType | None:
    """verl's module, without the rest of the package, which needs a cluster's worth of others."""
    path = "verl/utils/seqlen_balancing.py"
    if not (PEERS / path).exists():
        return None
    parts = {
        "verl": {},
        "verl.protocol": {"DataProto": object},
        "verl.utils": {"tensordict_utils": ModuleType("verl.utils.tensordict_utils")},
        "verl.utils.device": {"get_device_name": lambda: "cpu"},
    }
    for name, contents in parts.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(contents)
    return _module(path)


def _module(path: str) -> ModuleType:
    name = path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, PEERS / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
