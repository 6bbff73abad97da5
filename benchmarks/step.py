"""One training step of an RL system: rollouts of log-normal(8.6, 0.8) tokens, cut to the budget,
seeds from 0 on, planned for all ranks. Micro-steps are the mean over the seeds, the bound is the
mean of the proven one. Imbalance is the most expensive rank's cost over the mean, summed over
micro-steps, with verl's cost (24,576 a token + the squared length). Times are CPU time.

The peers' modules are read from the folders in `QUIRE_PEERS` (unpacked wheels, checkouts), those
that are there; a commit names a checkout. verl's `get_seqlen_balanced_partitions` first
gives every rank as many rollouts, then divides each rank's into micro-batches, one more on every
rank until all keep the budget, as its `rearrange_micro_batches` does. slime's `build_dp_schedule`
and prime-rl's `packed_samples_into_micro_bs` and `_distribute_group` balance with the same cost;
prime-rl's time is without copying tokens. NeMo-RL's bins (`MODIFIED_FIRST_FIT_DECREASING`) are
dealt round-robin, as its `shard_by_batch_size` does. AReaL's `balanced_greedy_partition` and
`ffd_allocate` are called as its controller and its ranks call them; it keeps groups on a rank too.
"""

from __future__ import annotations

import time
from functools import partial
from types import ModuleType

import numpy as np
import torch

import quire
from benchmarks.harness import Table, best_of_interleaved, milliseconds, ratio
from benchmarks.step_peers import COST, Planner, Rows, areal_step, find_peers, planners

TITLE = "One training step"
SEEDS = 20
_COLUMNS = ["planner", "micro-steps (bound)", "imbalance", "CPU time"]


def run() -> list[Table]:
    modules, missing = find_peers()
    note = f"Not found: {', '.join(missing)}." if missing else ""
    verl = next((module for name, module in modules.items() if name.startswith("verl")), None)
    return [_balance(planners(modules), note), _groups(modules), _partitions(verl), _values()]


def _balance(peers: dict[str, Planner], note: str) -> Table:
    table = Table(
        "Micro-steps and balance",
        ["rollouts, ranks, budget", *_COLUMNS],
        note,
    )
    for number, ranks, budget, seeds in (
        (512, 8, 16384, SEEDS),
        (512, 8, 8192, SEEDS),
        (4096, 128, 16384, 10),
    ):
        found: dict[str, Planner] = {"quire": _quire_step}
        if number == 512:  # the others take minutes for more
            found |= peers
        for name, plan in found.items():
            case = f"{number:,}, {ranks}, {budget:,}"
            table.add(case, name, *_measured(plan, number, ranks, budget, seeds))
    return table


def _groups(peers: dict[str, ModuleType]) -> Table:
    """Groups of 8 rollouts that stay on a rank, or in a micro-step."""
    table = Table(
        "Groups of 8 rollouts, 512 rollouts on 8 ranks",
        ["what a group shares, budget", *_COLUMNS],
        "The bound is the plan's own, which knows the groups.",
    )
    for budget in (16384, 8192):
        found = {"quire": partial(_quire_step, share="rank", group=8)}
        found |= {
            name: partial(areal_step, peer, group=8)
            for name, peer in peers.items()
            if name.startswith("AReaL")
        }
        for name, plan in found.items():
            measured = _measured(plan, 512, 8, budget, SEEDS, share="rank", group=8)
            table.add(f"rank, {budget:,}", name, *measured)
    share = {"share": "micro_step", "group": 8}
    measured = _measured(partial(_quire_step, **share), 512, 8, 16384, SEEDS, **share)
    table.add("micro-step, 16,384", "quire", *measured)
    return table


def _measured(
    plan: Planner, number: int, ranks: int, budget: int, seeds: int, **groups: object
) -> list[str]:
    """Micro-steps with their bound, imbalance and CPU time, means over the seeds."""
    steps = [_lengths(number, budget, seed) for seed in range(seeds)]
    bounds = [_bound(lengths, budget, ranks, **groups) for lengths in steps]
    found, seconds = [], []
    for lengths in steps:
        start = time.process_time()
        found.append(plan(lengths, budget, ranks))
        seconds.append(time.process_time() - start)
    for lengths, rows in zip(steps, found, strict=True):
        _check(lengths, budget, rows)
    uneven = [_imbalance(rows, lengths) for rows, lengths in zip(found, steps, strict=True)]
    return [
        f"{np.mean([len(rows[0]) for rows in found]):.2f} ({np.mean(bounds):.2f})",
        f"{np.mean(uneven):.4f}",
        milliseconds(float(np.mean(seconds))),
    ]


def _bound(lengths: np.ndarray, budget: int, ranks: int, **groups: object) -> int:
    if groups:
        return _plan(lengths, budget, ranks, **groups).lower_bound
    return -(-quire.lower_bound(lengths, budget) // ranks)


def _check(lengths: np.ndarray, budget: int, rows: Rows) -> None:
    """Every planner, also a peer, must place every rollout once and keep the budget."""
    placed = sorted(n for rank in rows for row in rank for n in row)
    within = all(lengths[row].sum() <= budget for rank in rows for row in rank)
    if placed != list(range(len(lengths))) or not within or len({*map(len, rows)}) > 1:
        raise RuntimeError("a plan loses rollouts, exceeds the budget or has uneven ranks")


def _partitions(peer: ModuleType | None) -> Table:
    """The function that RL systems have copied from each other, alone."""
    from quire.compat.reinforcement import get_seqlen_balanced_partitions

    table = Table(
        "Largest sum over the mean, get_seqlen_balanced_partitions",
        ["rollouts, partitions", "planner", "largest over mean", "CPU time"],
    )
    dividers = {"quire": get_seqlen_balanced_partitions}
    if peer is not None:
        dividers["verl"] = peer.get_seqlen_balanced_partitions
    for number, parts in ((64, 8), (1024, 64), (4096, 128)):
        lengths = _lengths(number, 16384, 0)
        for name, divide in dividers.items():
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


def _quire_step(lengths: np.ndarray, budget: int, ranks: int, **groups: object) -> Rows:
    plan = _plan(lengths, budget, ranks, **groups)
    micro_steps = range(plan.num_micro_steps)
    return [[plan.row(r, m).tolist() for m in micro_steps] for r in range(ranks)]


def _plan(
    lengths: np.ndarray, budget: int, ranks: int, share: str = "row", group: int = 0
) -> quire.StepPlan:
    groups = np.arange(len(lengths)) // group if group else None
    options = {"max_length": budget, "num_ranks": ranks, "cost": COST}
    return quire.pack_step(lengths, groups=groups, groups_share=share, **options)
