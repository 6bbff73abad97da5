"""`python -m tools.step_cases 1000000` plans so many random steps and checks every guarantee.

The cases are those of tests/step/cases.py, the checks those of tests/step/checker.py and layout.py,
which share no code with `pack_step`. The counts go to docs/reliability/step.json; a run that was
interrupted, or a run with more cases, continues from there, unless the code that plans steps has
changed since: then it starts again. A case takes about 2 ms of CPU; a second number is the number
of processes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from tests.step.cases import random_case
from tests.step.checker import violations
from tests.step.layout import layout_violations
from tests.step.optimum import fewest_micro_steps

import quire

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "reliability" / "step.json"
CHUNK = 1000
ROUND_TRIP = 8
"""Of so many cases one is also gathered and unpacked."""
LAYOUT = 50
"""Of so many cases one has its rows compared token by token, and their order and costs."""
BRUTE_FORCE = 4
"""Of so many cases one is also solved by trying all ways, if it is small."""


def main(cases: int, processes: int = 1, file: Path = FILE) -> None:
    """Check the cases after those that the file counts already."""
    code = digest()
    recorded = json.loads(file.read_text()) if file.exists() else {}
    counts, earlier = Counter(recorded.get("counts", {})), Counter(recorded.get("earlier code"))
    if counts and recorded.get("code") != code:
        earlier.update({name: counts[name] for name in ("cases", "violations")})
        counts = Counter()
    first = counts["cases"]
    with ProcessPoolExecutor(processes) as pool:
        tasks = [
            pool.submit(check, seed, min(CHUNK, cases - seed))
            for seed in range(first, cases, CHUNK)
        ]
        for task in tasks:  # in order, so that a later run knows where to continue
            counts += task.result()
            print(f"{counts['cases']:,} cases, {counts['violations']} violations", flush=True)
            result = {
                "command": "python -m tools.step_cases 1000000",
                "violations": counts["violations"],
                "code": code,
                "counts": dict(sorted(counts.items())),
                "earlier code": dict(earlier),
            }
            file.write_text(json.dumps(result, indent=1) + "\n")


def digest() -> str:
    """A digest of the code that plans steps: counts are of one version of it."""
    source = ROOT / "src" / "quire"
    files = [*sorted(source.glob("step/*.py")), source / "plan" / "exchange.py"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def check(first: int, number: int) -> Counter[str]:
    """The counts of so many cases, from a seed on."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + number):
        lengths, options = random_case(np.random.default_rng(seed))
        plan = quire.pack_step(lengths, **options)
        wrong = list(violations(lengths, plan, **options))
        if seed % ROUND_TRIP == 0:
            wrong += _round_trip(plan)
            counts["gathered and unpacked"] += 1
        if seed % LAYOUT == 0:
            wrong += layout_violations(lengths, plan, **options)
            counts["layout checked"] += 1
        if seed % BRUTE_FORCE == 0:
            optimum = fewest_micro_steps(lengths, plan, **options)
            counts["optimum known"] += optimum is not None
            counts["at the optimum"] += optimum == plan.num_micro_steps
            if optimum is not None and not plan.lower_bound <= optimum <= plan.num_micro_steps:
                wrong.append(f"bound {plan.lower_bound}, optimum {optimum}")
        for message in wrong:
            print(f"seed {seed}: {message}", flush=True)
        counts["cases"] += 1
        counts["violations"] += bool(wrong)
        counts["sequences"] += len(lengths)
        counts["with dummies"] += bool(len(plan.dummies))
        counts["above the bound"] += plan.num_micro_steps > plan.lower_bound
        for name in ("groups", "kinds", "budgets", "shapes"):
            counts[f"with {name}"] += name in options
    return counts


def _round_trip(plan: quire.StepPlan) -> list[str]:
    tokens = np.arange(1, plan.lengths.sum() + 1)
    in_rows = np.repeat(plan.inverse >= 0, plan.lengths)
    same = np.array_equal(
        plan.unpack(plan.gather(tokens, per="token"), per="token"), tokens * in_rows
    )
    return [] if same else ["unpack is not the inverse of gather"]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
