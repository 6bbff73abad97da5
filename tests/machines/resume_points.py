"""``python -m tests.machines.resume_points --points 100000 --json counts.json``.

A resume point is a state after some item, loaded from its serialized bytes into a new object. It is
exact if the next item *and the state after that* are those of the undisturbed run: what decides
all further items is then the same. Every tenth point is also followed to the end.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from random import Random

from tests.machines.counts import read_options, tell
from tests.machines.resumable import END, KINDS_OF_RESUMABLES, Make

MAX_ITEMS = 60


def undisturbed(make: Make) -> tuple[list[object], list[str]]:
    """The items of a run, and the states before the first and after each."""
    run = make()
    items: list[object] = []
    states = [run.state()]
    while len(items) < MAX_ITEMS:
        items.append(run.next())
        states.append(run.state())
        if items[-1] == END:
            break
    return items, states


def is_exact(make: Make, items: list[object], states: list[str], point: int) -> bool:
    """Whether a new one continues from a state as the undisturbed one did."""
    run = make()
    run.restore(states[point])
    if run.next() != items[point] or run.state() != states[point + 1]:
        return False
    if point % 10:
        return True
    return all(run.next() == item for item in items[point + 1 :])


def count_points(kind: str, points: int, seed: int = 0) -> Counter[str]:
    """The number of points tried and of inexact ones, over as many runs as needed."""
    choose_make, _ = KINDS_OF_RESUMABLES[kind]
    counts: Counter[str] = Counter(tried=0, inexact=0, runs=0)
    while counts["tried"] < points:
        make = choose_make(Random(f"{kind} {seed} {counts['runs']}"))
        items, states = undisturbed(make)
        for point in range(min(len(items), points - counts["tried"])):
            counts["tried"] += 1
            counts["inexact"] += not is_exact(make, items, states, point)
        counts["runs"] += 1
    return counts


def main(arguments: list[str] | None = None) -> int:
    """1 if a point was inexact."""
    said = read_options(__doc__, "points", 100_000, arguments)
    results = {}
    for kind, (_, percent) in KINDS_OF_RESUMABLES.items():
        began = time.monotonic()
        counts = count_points(kind, -(-said.points * percent // 100), said.seed)
        seconds = round(time.monotonic() - began, 1)
        results[kind] = {**counts, "seconds": seconds}
        print(f"{kind:14} {counts['tried']:8,} points of {counts['runs']:6,} runs, "
              f"{counts['inexact']} inexact, {seconds} s", flush=True)  # fmt: skip
    return tell("points", results, said)


if __name__ == "__main__":
    sys.exit(main())
