"""The default strategy, `exact_fit`: rows over the proven bound and CPU time, against a stable
argsort of the same lengths and `best_fit`, in rows of 4,096 unless stated otherwise. Times are
the best of several calls. LightBinPack (C++, strategy obfd) gets a list, as it cannot read arrays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from time import process_time

import numpy as np

import quire
from benchmarks.harness import Table, cpu_best_of, draw_lengths, milliseconds, percent, ratio
from benchmarks.tight import WIKIPEDIA
from quire.plan.bounds import bound_of_counts
from quire.plan.strategies.best_fit import best_fit_runs
from quire.plan.strategies.exact_fit import exact_fit_runs

TITLE = "The default strategy"
ROW = 4096
KINDS = (
    "chat",
    "web",
    "instructions",
    "log-normal(7.2, 0.3)",
    "log-normal(6.9, 0.5)",
    "uniform, 0.2 to 0.6",
    "uniform, 1/6 to 1/2",
    "uniform, 1 token to 0.8",
    "uniform",
)


def run() -> list[Table]:
    return [*sizes_of_plans(), real_lengths(), long_rows(), light_bin_pack(), capped(), mixing()]


def drawn(kind: str, count: int, row: int = ROW) -> np.ndarray:
    rng = np.random.default_rng(0)
    parts = {"0.2 to 0.6": (0.2, 0.6), "1/6 to 1/2": (1 / 6, 0.5), "1 token to 0.8": (1 / row, 0.8)}
    name, _, rest = kind.partition(", ")
    if name == "uniform" and rest:
        low, high = parts[rest]
        return rng.uniform(low * row, high * row, count).astype(np.int64)
    if kind.startswith("log-normal"):
        mean, sigma = map(float, kind[len("log-normal(") : -1].split(", "))
        return np.clip(rng.lognormal(mean, sigma, count).astype(np.int64), 1, row)
    return np.minimum(draw_lengths(kind, count, row), row)


def sizes_of_plans() -> Iterator[Table]:
    for count, repeats in ((10_000, 7), (100_000, 5), (1_000_000, 3)):
        table = Table(
            f"{count:,} documents",
            ["lengths", "bound", "best_fit", "exact_fit", "over", "best_fit time", "time"],
            note="Rows; over the bound in percent; times as multiples of that of argsort.",
        )
        for kind in KINDS:
            _add(table, kind, drawn(kind, count), ROW, repeats)
        yield table


def _add(table: Table, kind: str, lengths: np.ndarray, row: int, repeats: int) -> None:
    sort = cpu_best_of(repeats, lambda: np.argsort(lengths, kind="stable"))
    plans, times = [], []
    for strategy in ("best_fit", "exact_fit"):
        plans.append(quire.make_plan(lengths, row, strategy))
        seconds = cpu_best_of(repeats, lambda s=strategy: quire.make_plan(lengths, row, s))
        times.append(ratio(seconds / sort))
    bound = plans[0].lower_bound
    rows = [plan.num_rows for plan in plans]
    cells = [f"{number:,}" for number in (bound, *rows)]
    table.add(kind, *cells, percent(rows[1] / bound - 1), *times)


def real_lengths() -> Table:
    table = Table(
        "Real lengths",
        ["lengths", "row", "documents", "bound", "best_fit", "exact_fit", "over", "time"],
        note="Wikipedia is planned from the histogram of sizes, the part of planning that differs.",
    )
    if not WIKIPEDIA.exists():
        return table
    numbers = np.array(json.loads(WIKIPEDIA.read_text())["counts_for_length_1_up"])
    sizes = (np.flatnonzero(numbers) + 1)[::-1].tolist()
    counts = numbers[numbers > 0][::-1].tolist()
    wikipedia = sizes, counts, 512, sum(counts)
    rows = []
    seconds = cpu_best_of(1, lambda: rows.append(exact_fit_runs(*wikipedia)[1]))
    bound, best_fit = bound_of_counts(*wikipedia), best_fit_runs(*wikipedia)[1]
    _add_rows(table, ("Wikipedia", 512, sum(counts)), (bound, best_fit, rows[0]), seconds)
    for name in ("ai2d", "chartqa"):
        tokens = np.array(json.loads((WIKIPEDIA.parent / f"{name}_vl.json").read_text())["tokens"])
        plans = [quire.make_plan(tokens, 16_384, name) for name in ("best_fit", "exact_fit")]
        seconds = cpu_best_of(7, lambda lengths=tokens: quire.make_plan(lengths, 16_384))
        found = plans[0].lower_bound, *(plan.num_rows for plan in plans)
        _add_rows(table, (name, 16_384, len(tokens)), found, seconds)
    return table


def _add_rows(table: Table, about: tuple, rows: tuple[int, ...], seconds: float) -> None:
    cells = [f"{number:,}" for number in (about[2], *rows)]
    table.add(*about[:2], *cells, percent(rows[2] / rows[0] - 1), milliseconds(seconds))


def long_rows() -> Table:
    table = Table(
        "1,000,000 documents in rows of 32,768",
        ["lengths", "bound", "best_fit", "exact_fit", "over", "best_fit time", "time"],
    )
    for kind in ("log-normal(9.28, 0.3)", "log-normal(9.08, 0.42)", "web"):
        _add(table, kind, drawn(kind, 1_000_000, 32_768), 32_768, 1)
    return table


def light_bin_pack() -> Table:
    table = Table(
        "100,000 documents against LightBinPack 0.1.1, obfd",
        ["lengths", "quire", "rows", "LightBinPack", "its rows", "quire / LightBinPack"],
    )
    try:
        from lightbinpack import obfd
    except ImportError:
        print("   LightBinPack is not installed")
        return table
    for kind in ("chat", "web", "instructions"):
        lengths = drawn(kind, 100_000)
        as_list = lengths.tolist()
        ours = cpu_best_of(7, lambda x=lengths: quire.make_plan(x, ROW))
        theirs = cpu_best_of(7, lambda x=as_list: obfd(x, ROW))
        rows = f"{quire.make_plan(lengths, ROW).num_rows:,}", f"{len(obfd(as_list, ROW)):,}"
        table.add(
            kind,
            milliseconds(ours),
            rows[0],
            milliseconds(theirs),
            rows[1],
            ratio(ours / theirs),
        )
    return table


def capped() -> Table:
    table = Table(
        "20,000 documents, at most so many in a row",
        ["lengths", "cap", "bound", "best_fit", "exact_fit", "tight", "exact_fit time", "tight"],
        note="`tight` is for these: its linear program finds fewer rows where the cap binds.",
    )
    for kind, cap in (("web", 4), ("chat", 3), ("chat", 4), ("log-normal(6.9, 0.5)", 4)):
        lengths = drawn(kind, 20_000)
        plans, times = [], []
        for name in ("best_fit", "exact_fit", "tight"):
            start = process_time()
            plans.append(quire.make_plan(lengths, ROW, name, max_documents_per_row=cap))
            times.append(milliseconds(process_time() - start))
        rows = [f"{number:,}" for number in (plans[0].lower_bound, *(p.num_rows for p in plans))]
        table.add(kind, cap, *rows, *times[1:])
    return table


def mixing() -> Table:
    table = Table(
        "What shares a row, 10,000 documents",
        ["lengths", "exact_fit", "best_fit", "random first-fit"],
        note=(
            "Rows of two and more documents whose lengths are all equal; the spread of the "
            "logarithms of lengths inside rows over that of all documents."
        ),
    )
    for kind in KINDS:
        lengths = drawn(kind, 10_000)
        mixed = lengths[np.random.default_rng(1).permutation(len(lengths))]
        plans = [quire.make_plan(lengths, ROW, name) for name in ("exact_fit", "best_fit")]
        parts = [(lengths[plan.documents], plan.row_offsets) for plan in plans]
        parts.append(_first_fit(mixed))
        table.add(kind, *[_mixed(*part) for part in parts])
    return table


def _first_fit(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = list[list[int]]()
    space = np.full(len(lengths), ROW)
    for length in lengths.tolist():
        row = int((space >= length).argmax())
        space[row] -= length
        if row == len(rows):
            rows.append([])
        rows[row].append(length)
    return np.concatenate(rows), np.append(0, np.cumsum([len(row) for row in rows]))


def _mixed(lengths: np.ndarray, offsets: np.ndarray) -> str:
    counts, logs = np.diff(offsets), np.log(lengths)
    same = np.maximum.reduceat(lengths, offsets[:-1]) == np.minimum.reduceat(lengths, offsets[:-1])
    several = counts > 1
    means = np.add.reduceat(logs, offsets[:-1]) / counts
    spread = np.std(logs - np.repeat(means, counts)) / np.std(logs)
    return f"{percent(float(same[several].mean()), 2)}, {spread:.2f}"
