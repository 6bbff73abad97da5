"""`PackedVLDataset` compared with ms-swift: `binpacking.to_constant_volume` 2.0.1 on every buffer,
with the last group carried into the next one. Both read the same samples (dicts with a length) one
by one and yield lists of them; neither drops a sample. Ours also checks every sample and keeps the
ledger. "Full places" is tokens divided by packs times pack length. chartqa and ai2d are lengths of
real training samples, at 16,384 tokens; the others are drawn at 4,096, with longer ones cut to one
token less. Times are the best of several interleaved runs.

"At 0.65" is the default `packing_min_fill_ratio`: fuller groups leave at once. At 0.9 more groups
wait to be filled, at most twice; ms-swift's last group may wait forever. "Known lengths" is the
same dataset with its lengths given: packs are planned before any sample is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import binpacking
import numpy as np

from benchmarks.harness import (
    Table,
    best_of,
    best_of_interleaved,
    draw_lengths,
    percent,
    ratio,
)
from benchmarks.vectors import best_fit, first_fit
from quire.plan.search.bound import vector_bound
from quire.vision import PackedVLDataset

TITLE = "Vision-language packing"
BUFFERS = (128, 512, 1000)
LENGTHS = Path(__file__).parents[2] / "shared" / "lengths"
Sample = dict[str, int]


class Samples:
    """Map-style; lengths are unknown until a sample is read."""

    def __init__(self, lengths: np.ndarray) -> None:
        self.items = [{"length": length} for length in lengths.tolist()]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Sample:
        return self.items[number]


def run(num_samples: int = 20_000, repeats: int = 3) -> list[Table]:
    return [
        against_constant_volume(num_samples, repeats),
        several_budgets(num_samples),
    ]


def against_constant_volume(num_samples: int, repeats: int) -> Table:
    table = Table(
        "One budget: tokens",
        [
            "lengths",
            "buffer",
            "full places at 0.65",
            "at 0.9",
            "ms-swift's way",
            "samples/s",
            "ms-swift's way",
            "ratio",
            "samples/s, known lengths",
        ],
    )
    for name, (lengths, max_length) in one_dimensional(num_samples).items():
        samples = Samples(lengths)
        for buffer in BUFFERS:
            table.add(name, buffer, *_compared(samples, lengths, max_length, buffer, repeats))
    return table


def _compared(
    samples: Samples, lengths: np.ndarray, max_length: int, buffer: int, repeats: int
) -> list[str]:
    def ours(**options: object) -> list[list[Sample]]:
        return list(
            PackedVLDataset(
                samples,
                packing_length=max_length,
                packing_buffer=buffer,
                packing_drop_last=False,
                **options,
            )
        )

    def theirs() -> list[list[Sample]]:
        return list(constant_volume_packs(samples, max_length, buffer))

    times = best_of_interleaved(repeats, ours, theirs, lambda: ours(lengths=lengths))
    shares = [
        share(packs, max_length) for packs in (ours(), ours(packing_min_fill_ratio=0.9), theirs())
    ]
    speeds = [f"{len(samples) / seconds:,.0f}" for seconds in times]
    return [*map(percent, shares), *speeds[:2], ratio(times[1] / times[0]), speeds[2]]


def constant_volume_packs(samples: Samples, max_length: int, buffer: int) -> Iterator[list[Sample]]:
    waiting: list[tuple[Sample, int]] = []
    for start in range(0, len(samples), buffer):
        new = [samples[number] for number in range(start, min(start + buffer, len(samples)))]
        waiting += [(sample, sample["length"]) for sample in new]
        groups = binpacking.to_constant_volume(waiting, max_length, weight_pos=1)
        is_finished = start + buffer >= len(samples)
        waiting = [] if is_finished else groups.pop()
        yield from ([sample for sample, _ in group] for group in groups)


def share(packs: list[list[Sample]], max_length: int) -> float:
    totals = [sum(sample["length"] for sample in pack) for pack in packs]
    assert max(totals) <= max_length
    return sum(totals) / (len(totals) * max_length)


def one_dimensional(num_samples: int) -> dict[str, tuple[np.ndarray, int]]:
    real = {name: (tokens[:num_samples], 16_384) for name, (tokens, _) in published().items()}
    drawn = {
        kind: (np.minimum(draw_lengths(kind, num_samples, 4096), 4095), 4096)
        for kind in ("chat", "instructions", "web")
    }
    return real | drawn


def published() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {}
    for path in sorted(LENGTHS.glob("*_vl.json")):
        plain = json.loads(path.read_text())
        name = path.stem.removesuffix("_vl")
        found[name] = (np.array(plain["tokens"]), np.array(plain["tiles"]))
    return found


def several_budgets(num_samples: int) -> Table:
    table = Table(
        "Two budgets: tokens and vision tiles",
        [
            "lengths",
            "tiles",
            "first-fit, 20 packs open",
            "best-fit decreasing",
            *[f"packs, buffer {n}" for n in BUFFERS],
            "whole epoch",
            "on 8 ranks",
            "no plan has fewer",
            "gap",
            "seconds",
        ],
        note="Packs made from known sizes; `packing_scope` is buffer or epoch. The column for 8 "
        "ranks is their total; each has the same number. Seconds and gap are those of the whole "
        "epoch on one rank.",
    )
    for name, (all_tokens, all_tiles) in published().items():
        sizes = np.column_stack([all_tokens[:num_samples], all_tiles[:num_samples]])
        for most in (64, 56):
            table.add(name, most, *_packs_of_two_budgets(sizes, np.array([16_384, most])))
    return table


def _packs_of_two_budgets(sizes: np.ndarray, budgets: np.ndarray) -> list[str]:
    whole: list[int] = []
    seconds = best_of(1, lambda: whole.append(_num_packs(sizes, budgets)))
    counts = [
        first_fit(sizes, budgets, most_open=20),
        best_fit(sizes, budgets, decreasing=True),
        *(_num_packs(sizes, budgets, packing_buffer=n, packing_scope="buffer") for n in BUFFERS),
        whole[0],
        8 * _num_packs(sizes, budgets, world_size=8),
        bound := vector_bound(sizes, budgets),
    ]
    gap = percent(whole[0] / bound - 1, 2)
    return [*(f"{count:,}" for count in counts), gap, f"{seconds:.1f}"]


def _num_packs(sizes: np.ndarray, budgets: np.ndarray, **options: object) -> int:
    tokens, patches = (int(budget) for budget in budgets)
    dataset = PackedVLDataset(
        Samples(sizes[:, 0]),
        packing_length=tokens,
        packing_max_patches=patches,
        packing_drop_last=False,
        lengths={"tokens": sizes[:, 0], "patches": sizes[:, 1]},
        **options,
    )
    return len(dataset)
