"""Random steps with all options of `pack_step`, from one seed."""

from __future__ import annotations

import numpy as np

LAYERS = {"num_hidden_layers": 2}


def random_case(rng: np.random.Generator) -> tuple[np.ndarray, dict]:
    """Lengths and options that `pack_step` must be able to plan."""
    number = int(rng.integers(0, rng.choice([4, 8, 12, 40, 200], p=[0.3, 0.4, 0.25, 0.04, 0.01])))
    align, align_rows = (int(rng.choice([1, 1, 1, 2, 3, 4])) for _ in range(2))
    max_length = int(rng.choice([8, 16, 50, 64, 127, 1000, 32768]))
    overlong = str(rng.choice(["error", "split", "drop"]))
    options: dict = {
        "max_length": max_length,
        "num_ranks": int(rng.choice([1, 2, 3, 4, 8, 16])),
        "overlong": overlong,
        "align": align,
        "align_rows": align_rows,
    }
    largest = max_length // align_rows * align_rows
    if rng.random() < 0.2:
        shapes = rng.integers(1, largest // align_rows + 1, 3) * align_rows
        options["shapes"] = int(rng.integers(1, 4))
        if rng.random() < 0.5:
            options["shapes"] = [largest, *shapes.tolist()]
    space = largest // align * align
    lengths = _lengths(rng, number, space if overlong == "error" else 2 * space)
    _add_labels(rng, options, number)
    if options.get("groups_share", "rank") != "rank":
        options["overlong"] = "drop"  # a group may be too large
    if rng.random() < 0.3:
        options["min_micro_steps"] = int(rng.integers(1, 9))
    if rng.random() < 0.3:
        options["micro_steps_multiple_of"] = int(rng.integers(1, 5))
    _add_budgets(rng, options, number)
    costs = [None, (24576, 1), (1, 0), (0, 1), (0, 0), np.sqrt, {"hidden_size": 64} | LAYERS]
    options["cost"] = costs[int(rng.integers(len(costs)))]
    options["order"] = str(rng.choice(["largest_first", "smallest_at_ends"]))
    kinds_of_lengths = [list, np.array, lambda values: values.astype(np.int32)]
    return kinds_of_lengths[int(rng.integers(3))](lengths), options


def _lengths(rng: np.random.Generator, number: int, largest: int) -> np.ndarray:
    shape = rng.integers(4)
    if shape == 0:
        return rng.integers(0, largest + 1, number)
    if shape == 1:
        drawn = rng.lognormal(np.log(largest / 4), 0.8, number).astype(np.int64)
        return np.minimum(drawn, largest)
    if shape == 2:
        return np.full(number, rng.integers(1, largest + 1))
    return rng.choice([1, largest // 2, largest // 2 + 1, largest], number)


def _add_labels(rng: np.random.Generator, options: dict, number: int) -> None:
    kinds = rng.integers(0, 3, number) if rng.random() < 0.3 else None
    if rng.random() < 0.45:
        share = str(rng.choice(["row", "rank", "micro_step"]))
        groups = rng.integers(0, max(1, number // 2) + 1, number)
        labels = [None if rng.random() < 0.1 else int(group) for group in groups]
        if kinds is not None and share != "rank":
            kinds = np.array([0 if g is None else g % 2 for g in labels], dtype=np.int64)
        options.update(groups=labels, groups_share=share)
    if kinds is not None:
        options["kinds"] = kinds


def _add_budgets(rng: np.random.Generator, options: dict, number: int) -> None:
    for name in ("images", "patches")[: int(rng.choice([0, 1, 2], p=[0.8, 0.15, 0.05]))]:
        limit = int(rng.integers(3, 8))
        most = limit + 2 if options["overlong"] == "drop" else 3
        budget = rng.integers(0, most + 1, number), limit
        options["budgets"] = {**options.get("budgets", {}), name: budget}
