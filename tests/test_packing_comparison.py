"""The guide's comparison of strategies, asserted on real text and on real kinds of lengths.

Where the guide claims more than is true ("50 % fewer blocks" than greedy, for one), the test says
what is true. Figures in comments were measured with CPython 3.11's sources; bounds leave room for
other versions.
"""

from __future__ import annotations

import sysconfig
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from quire.blocks import BlockOptions, PackedRows, pack_texts
from quire.plan import Plan, plan_documents

STRATEGIES = ("greedy", "first_fit", "best_fit")
MAX_LENGTH = 4096
LOG_NORMAL = {"web": (6.345, 1.092), "chat": (7.0, 0.42), "instructions": (4.7, 0.85)}


@cache
def texts() -> list[str]:
    """Top-level pieces (functions, classes) of the standard library's own sources."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:80]
    sources = [file.read_text(encoding="utf-8") for file in files]
    return [piece for source in sources for piece in source.split("\n\n\n") if piece]


@cache
def packed(strategy: str, overflow: bool, max_length: int = MAX_LENGTH) -> PackedRows:
    options = BlockOptions(
        max_length=max_length, packed=True, packing_strategy=strategy, overflow=overflow
    )
    return pack_texts(texts(), "byte", options)


def utilization(rows: PackedRows) -> float:
    """As the guide computes it: the mean length of rows over max_length."""
    lengths = [len(row) for row in rows.input_ids]
    return sum(lengths) / len(lengths) / rows.plan.max_length


def keeps_order(rows: PackedRows) -> bool:
    places = [(f.document, f.start) for row in rows.plan for f in row]
    return places == sorted(places)


# The corpus is one on which strategies differ


def test_the_corpus_has_documents_of_all_lengths():
    lengths = np.array([len(text.encode()) for text in texts()])
    assert len(lengths) > 500  # 785
    assert np.median(lengths) < MAX_LENGTH / 4
    assert lengths.max() > MAX_LENGTH


# Real text


@pytest.mark.parametrize("overflow", [True, False])
def test_only_greedy_keeps_the_order_of_documents(overflow):
    assert keeps_order(packed("greedy", overflow))
    assert not keeps_order(packed("first_fit", overflow))
    assert not keeps_order(packed("best_fit", overflow))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_overflow_nothing_is_lost(strategy):
    ledger = packed(strategy, True).ledger
    assert not ledger.tokens.dropped
    assert ledger.tokens.emitted == sum(len(text.encode()) for text in texts())


def test_without_overflow_every_strategy_cuts_the_same_tokens():
    cut = {packed(strategy, False).ledger.tokens.dropped["truncated"] for strategy in STRATEGIES}
    longest = MAX_LENGTH - 1
    assert cut == {sum(max(0, len(text.encode()) - longest) for text in texts())}


@pytest.mark.parametrize("max_length", [2048, 4096, 8192])
def test_in_truncate_mode_best_fit_needs_fewer_rows_than_greedy(max_length):
    greedy, best = (packed(name, False, max_length) for name in ("greedy", "best_fit"))
    saved = 1 - len(best.input_ids) / len(greedy.input_ids)
    assert 0.15 <= saved < 0.5  # 19.6, 20.4 and 21.3 %


def test_utilization_is_at_least_what_the_guide_promises():
    """95 % for greedy, 96 for first_fit, 98 for best_fit: greedy needs overflow for that."""
    assert utilization(packed("greedy", True)) >= 0.99  # 99.98 %
    assert utilization(packed("greedy", False)) < 0.90  # 79.5 %
    for overflow in (True, False):
        assert utilization(packed("first_fit", overflow)) >= 0.98  # 99.8 %
        assert utilization(packed("best_fit", overflow)) >= 0.98


def test_with_overflow_greedy_needs_no_more_rows_than_any_other():
    rows = {name: len(packed(name, True).input_ids) for name in STRATEGIES}
    # BOS opens every fragment, so a cut costs a place: hence not strictly the fewest.
    assert rows["greedy"] <= min(rows.values()) * 1.005


def test_best_fit_rows_come_longest_documents_first_until_they_are_shuffled():
    """The bias that shuffle_output removes."""
    plain = packed("best_fit", False)
    firsts = [row[0].stop for row in plain.plan]
    assert firsts == sorted(firsts, reverse=True)
    options = BlockOptions(
        max_length=MAX_LENGTH,
        packed=True,
        packing_strategy="best_fit",
        overflow=False,
        shuffle_output=True,
    )
    shuffled = pack_texts(texts(), "byte", options)
    assert sorted(shuffled.input_ids) == sorted(plain.input_ids)
    falls = sum(a.stop > b.stop for (a, *_), (b, *_) in pairwise(shuffled.plan))
    assert 0.25 < falls / len(shuffled.input_ids) < 0.75


def test_packing_gives_a_fraction_of_the_rows():
    alone = pack_texts(texts(), "byte", BlockOptions(max_length=MAX_LENGTH))
    best = packed("best_fit", True)
    assert len(best.input_ids) * 1.7 < len(alone.input_ids)  # 552 and 1,128 rows
    assert alone.ledger.tokens.emitted == best.ledger.tokens.emitted


def test_large_map_batches_pack_better_than_small_ones():
    options = BlockOptions(
        max_length=MAX_LENGTH, packed=True, packing_strategy="best_fit", overflow=False
    )

    def rows_in_batches_of(size: int) -> int:
        batches = [texts()[at : at + size] for at in range(0, len(texts()), size)]
        return sum(len(pack_texts(batch, "byte", options).input_ids) for batch in batches)

    ten, hundred, thousand = (rows_in_batches_of(size) for size in (10, 100, 1000))
    assert ten > hundred > thousand  # 322, 284 and 281 rows


# Kinds of lengths


@cache
def planned(kind: str, max_length: int, strategy: str, overflow: bool) -> Plan:
    rng = np.random.default_rng(0)
    if kind == "uniform":
        lengths = rng.integers(1, max_length + 1, 20_000)
    else:
        lengths = np.maximum(1, rng.lognormal(*LOG_NORMAL[kind], 20_000).astype(int))
    options = BlockOptions(
        max_length=max_length, packed=True, packing_strategy=strategy, overflow=overflow
    )
    return plan_documents(lengths, options.plan_options())


# Rows that best_fit saves against greedy in truncate mode; measured 22.0, 19.3, 23.7, 16.5, 7.8,
# 4.0 and 24.9 % with 100,000 documents.
SAVED = {
    ("web", 2048): 0.20,
    ("web", 4096): 0.17,
    ("chat", 2048): 0.21,
    ("chat", 4096): 0.14,
    ("instructions", 2048): 0.06,
    ("instructions", 4096): 0.03,
    ("uniform", 2048): 0.23,
}


@pytest.mark.parametrize(("kind", "max_length"), SAVED)
def test_best_fit_saves_rows_in_truncate_mode(kind, max_length):
    greedy, first, best = (planned(kind, max_length, name, False) for name in STRATEGIES)
    saved = 1 - best.num_rows / greedy.num_rows
    assert saved >= SAVED[kind, max_length]
    assert saved < 0.5, "the guide's 50 % is next-fit's worst case, not a usual one"
    assert best.num_rows <= first.num_rows
    assert best.ledger.tokens.emitted == greedy.ledger.tokens.emitted


@pytest.mark.parametrize(("kind", "max_length"), SAVED)
def test_with_overflow_greedy_is_full_and_needs_the_fewest_rows(kind, max_length):
    greedy, first, best = (planned(kind, max_length, name, True) for name in STRATEGIES)
    assert greedy.utilization > 0.998
    assert greedy.num_rows == greedy.lower_bound == -(-greedy.ledger.tokens.input // max_length)
    assert greedy.num_rows <= min(first.num_rows, best.num_rows)
    assert min(first.utilization, best.utilization) > 0.96


def test_half_of_the_rows_are_saved_in_the_worst_case_of_next_fit():
    """Halves of a row, each followed by one token that keeps the next half out."""
    lengths = [MAX_LENGTH // 2, 1] * 1000
    greedy, best = (
        plan_documents(
            lengths,
            BlockOptions(
                max_length=MAX_LENGTH, packed=True, packing_strategy=name, overflow=False
            ).plan_options(),
        )
        for name in ("greedy", "best_fit")
    )
    assert (greedy.num_rows, best.num_rows) == (1000, 501)
