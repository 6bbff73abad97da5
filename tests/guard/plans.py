"""Plans: every strategy, every policy for overlong documents, and the options that shape rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from quire import OnlinePacker, attention_costs, balance, lower_bound, make_plan
from quire.plan.search.several_budgets import pack_vectors

Case = Callable[[Path], dict[str, object]]
CAPACITY = 64


def lengths(kind: str = "web", count: int = 200) -> np.ndarray:
    """Lengths of one of the shapes that corpora have."""
    draw = np.random.default_rng(7)
    if kind == "web":
        return draw.lognormal(3.0, 1.0, count).astype(int) + 1
    if kind == "chat":
        return draw.lognormal(2.8, 0.4, count).astype(int) + 1
    return draw.integers(CAPACITY // 3, CAPACITY // 2 + 1, count)  # hard: two or three fill a row


OPTIONS: dict[str, dict[str, object]] = {
    "plain": {},
    "shuffled": {"shuffle": True, "seed": 3},
    "stride": {"stride": 5},
    "prefix": {"prefix": 1},
    "align": {"align": 8},
    "capped": {"max_documents_per_row": 3},
    "min_length": {"min_length": 50},
    "truncate": {"overlong": "truncate"},
    "truncate_left": {"overlong": "truncate_left"},
    "drop": {"overlong": "drop"},
    "fill": {"overlong": "fill", "min_fragment": 4},
}
STRATEGIES = ("greedy", "wrapped", "best_fit", "exact_fit", "first_fit", "tight")
"""``wrapped`` fills rows completely, so it takes no alignment, no cap and no other policy."""


def cases() -> Iterator[tuple[str, Case]]:
    for strategy in STRATEGIES:
        for name, options in OPTIONS.items():
            if strategy == "wrapped" and name not in ("plain", "shuffled", "prefix", "min_length"):
                continue
            if strategy == "tight" and name not in ("plain", "prefix", "capped", "align"):
                continue
            yield f"plan/{strategy}/{name}", partial(_plan, "web", strategy, options)
    for kind in ("chat", "hard"):
        for strategy in ("best_fit", "exact_fit", "first_fit", "tight"):
            yield f"plan/{kind}/{strategy}", partial(_plan, kind, strategy, {})
    for name, options in {
        "plain": {},
        "capped": {"max_documents_per_row": 3},
        "align": {"align": 8},
    }.items():
        yield f"online/{name}", partial(_online, options)
    for ranks in (1, 4):
        yield f"balance/{ranks}", partial(_balance, ranks)
    for effort in ("fast", "full"):
        yield f"vectors/{effort}", partial(_vectors, effort)


def _plan(kind: str, strategy: str, options: dict[str, object], _folder: Path) -> dict[str, object]:
    plan = make_plan(lengths(kind), CAPACITY, strategy=strategy, **options)
    bound = lower_bound(np.minimum(lengths(kind), CAPACITY), CAPACITY)
    return {"plan": plan, "ledger": plan.ledger, "bound": [plan.lower_bound, bound]}


def _online(options: dict[str, object], _folder: Path) -> dict[str, object]:
    packer = OnlinePacker(CAPACITY, 16, **options)
    fitting = np.minimum(lengths(), CAPACITY).tolist()
    rows = [row for key, length in enumerate(fitting) for row in packer.add(key, length)]
    state = packer.state_dict()
    restored = OnlinePacker(CAPACITY, 16, **options)
    restored.load_state_dict(state)
    return {"rows": rows, "state": state, "rest": restored.flush()}


def _balance(ranks: int, _folder: Path) -> dict[str, object]:
    plan = make_plan(lengths(), CAPACITY)
    dealt = balance(plan, ranks, 2)
    return {"rows": dealt.rows, "ledger": dealt.ledger, "costs": attention_costs(plan)}


def _vectors(effort: str, _folder: Path) -> dict[str, object]:
    draw = np.random.default_rng(5)
    sizes = np.stack([draw.integers(1, 40, 60), draw.integers(0, 6, 60)], axis=1)
    return {"rows": pack_vectors(sizes, [CAPACITY, 8], effort=effort)}
