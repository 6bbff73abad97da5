"""The packing guide's table: `block_tokenize_fn` with its three strategies, documents split
(`overflow`) or truncated, on the Python standard library's sources (a file is a document, a byte is
a token, BOS and EOS added) and on lengths like those of web pages, chats and instructions. "Saved"
is relative to greedy in truncate mode, where every strategy cuts the same tokens; with `overflow`
nothing is cut, so rows hold more tokens. Times are from text to rows for sources, and for planning
for lengths. Web log-normal(6.345, 1.092), chat log-normal(7.0, 0.42), instructions log-normal(4.7,
0.85).
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np

from benchmarks.harness import Table, best_of_interleaved, draw_lengths, milliseconds, percent
from quire.blocks import BlockOptions, pack_texts
from quire.ledger import Ledger
from quire.plan import Plan, plan_documents

TITLE = "Blocks: greedy, first_fit and best_fit, with overflow and without"
STRATEGIES = ("greedy", "first_fit", "best_fit")
HEADER = [
    "data",
    "max_length",
    "overflow",
    "strategy",
    "rows",
    "full",
    "rows saved",
    "tokens cut",
    "order kept",
    "time",
]


def run() -> list[Table]:
    return [sources(), lengths(), batch_sizes()]


def options_for(strategy: str, max_length: int, *, overflow: bool) -> BlockOptions:
    return BlockOptions(
        max_length=max_length, packed=True, packing_strategy=strategy, overflow=overflow
    )


def cases(max_length: int) -> list[BlockOptions]:
    """Greedy in truncate mode first: the others are compared with it."""
    return [
        options_for(strategy, max_length, overflow=overflow)
        for overflow in (False, True)
        for strategy in STRATEGIES
    ]


def standard_library() -> list[str]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in folder.rglob("*.py") if "site-packages" not in path.parts)
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


def sources() -> Table:
    texts = standard_library()
    table = Table(f"The standard library's {len(texts):,} sources, bytes as tokens", HEADER)
    for max_length in (4096, 32_768):
        options = cases(max_length)
        packed = [pack_texts(texts, "byte", each) for each in options]
        calls = [lambda each=each: pack_texts(texts, "byte", each) for each in options]
        seconds = best_of_interleaved(3, *calls)
        for each, rows, time in zip(options, packed, seconds, strict=True):
            saved = rows_saved(rows.plan, packed[0].plan)
            add(table, "sources", each, rows.plan, rows.ledger, saved, time)
    return table


def lengths() -> Table:
    table = Table(
        "100,000 documents of kinds of lengths",
        HEADER,
        note="The guide's 50 % is what next-fit loses at its worst (halves of a row, each "
        "followed by one token); these are its losses on typical lengths.",
    )
    for kind in ("web", "chat", "instructions"):
        for max_length in (2048, 4096):
            drawn = draw_lengths(kind, 100_000, max_length)
            options = cases(max_length)
            calls = [planning(drawn, each) for each in options]
            plans = [call() for call in calls]
            seconds = best_of_interleaved(5, *calls)
            for each, plan, time in zip(options, plans, seconds, strict=True):
                add(table, kind, each, plan, plan.ledger, rows_saved(plan, plans[0]), time)
    return table


def planning(drawn: np.ndarray, options: BlockOptions):
    return lambda: plan_documents(drawn, options.plan_options())


def batch_sizes() -> Table:
    table = Table(
        "Rows of 32,768 by the size of the map batch (sources, best_fit, no overflow)",
        ["batch_size", "rows", "full"],
        note="Packing inside `datasets.map` sees one batch at a time.",
    )
    texts, options = standard_library(), options_for("best_fit", 32_768, overflow=False)
    for size in (10, 100, 1000, len(texts)):
        plans = [
            pack_texts(texts[at : at + size], "byte", options).plan
            for at in range(0, len(texts), size)
        ]
        rows = sum(plan.num_rows for plan in plans)
        tokens = sum(int(plan.row_lengths.sum()) for plan in plans)
        table.add(f"{size:,}", f"{rows:,}", percent(tokens / (rows * options.max_length), 2))
    return table


def rows_saved(plan: Plan, greedy: Plan) -> float:
    return 1 - plan.num_rows / greedy.num_rows


def add(
    table: Table,
    data: str,
    options: BlockOptions,
    plan: Plan,
    ledger: Ledger,
    saved: float,
    seconds: float,
) -> None:
    table.add(
        data,
        f"{options.max_length:,}",
        "yes" if options.overflow else "no",
        options.packing_strategy,
        f"{plan.num_rows:,}",
        percent(int(plan.row_lengths.sum()) / (plan.num_rows * plan.max_length), 2),
        # Rows that hold more tokens are not saved rows.
        "" if options.overflow else percent(saved, 1),
        percent(ledger.tokens.num_dropped / ledger.tokens.input, 1),
        "yes" if in_order(plan) else "no",
        milliseconds(seconds),
    )


def in_order(plan: Plan) -> bool:
    places = plan.documents.astype(np.int64) * 2**40 + plan.starts
    return bool((np.diff(places) > 0).all())
