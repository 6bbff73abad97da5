"""How chunks call a strategy, how many rows they may need, and which rows they keep."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from quire import make_plan
from quire.plan import PlanOptions, chunks
from quire.plan.fragments import Rows, whole_documents
from quire.plan.lengths import as_lengths
from quire.plan.strategies.best_fit import best_fit


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 8)
    monkeypatch.setattr(chunks, "MANY", 16)
    monkeypatch.setattr(chunks, "BLOCK", 2)


class Whole:
    """Replaces a strategy's row count of the whole; returns a given number."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.asked: list[tuple[object, ...]] = []

    def __call__(self, *asked: object) -> tuple[list[int], int]:
        self.asked.append(asked)
        return [], self.num_rows


def placed(lengths: list[int], whole: Whole, **options: object) -> chunks.Placed | None:
    """Best-fit in chunks, compared with a whole that needs the given rows."""
    options = PlanOptions(**{"max_length": 10, **options})

    def place(part: np.ndarray) -> chunks.Placed:
        fragments = whole_documents(part, options)
        rows = best_fit(options.spaces(fragments.lengths), options.row_space, options)
        return fragments.take(rows.fragments), rows.offsets

    return chunks.place_chunks(as_lengths(lengths), options, place, best_fit, whole)


@pytest.mark.parametrize(
    ("fewest", "kept"), [(17, True), (16, True), (13, True), (12, False), (1, False)]
)
def test_chunks_may_need_a_few_more_rows_than_the_whole(monkeypatch, fewest, kept):
    monkeypatch.setattr(chunks, "_WORSE", 4)
    found = placed([9] * 17, Whole(fewest))  # 17 rows: 13 + 13 // 4 + 1, but not 12 + 3 + 1
    assert (found is not None) == kept


def test_chunks_may_need_one_row_in_a_thousand_more():
    assert placed([9] * 2003, Whole(2000)) is not None  # 2000 + 2 + 1
    assert placed([9] * 2003, Whole(1999)) is None  # 1999 + 1 + 1


def test_the_strategy_is_asked_about_all_sizes_of_all_chunks():
    whole = Whole(17)
    placed([9, 8, 7] * 6, whole)
    assert whole.asked == [([9, 8, 7], [6, 6, 6], 10, 18)]


def test_prefix_and_alignment_are_part_of_the_sizes_and_a_cap_is_passed_on():
    whole = Whole(18)
    placed([9, 5] * 9, whole, max_length=31, prefix=1, align=4, max_documents_per_row=5)
    assert whole.asked == [([12, 8], [9, 9], 28, 5)]


def test_a_row_that_holds_everything_need_not_be_larger():
    whole = Whole(1)
    placed([9, 8] * 9, whole, max_length=10**6)
    assert whole.asked == [([9, 8], [9, 9], 9 * 17, 18)]


def test_the_strategy_is_not_called_for_chunks_without_tokens():
    whole = Whole(5)
    fragments, offsets = placed([0] * 20, whole)
    assert (len(fragments), offsets.tolist(), whole.asked) == (0, [0], [])


def test_documents_longer_than_32_bits_are_planned_in_chunks():
    lengths = [2**31 + number for number in range(20)]
    plan = make_plan(lengths, max_length=2**32)
    assert sorted(zip(plan.documents.tolist(), plan.stops.tolist(), strict=True)) == list(
        enumerate(lengths)
    )
    assert plan.stops.dtype == np.int64
    assert make_plan([9] * 20, max_length=10).stops.dtype == np.int32


@pytest.mark.parametrize("stride", [0, 1, 7])
def test_documents_of_many_fragments_are_planned_in_chunks(stride):
    plan = make_plan([80] * 20, max_length=8, stride=stride)
    assert plan.ledger.tokens.emitted == 1600
    assert plan.num_fragments == 20 * -(-(80 - stride) // (8 - stride))


@pytest.mark.parametrize("num_rows", [1, 2])
def test_rows_placed_again_are_used_if_they_are_fewer(num_rows):
    options = PlanOptions(max_length=9)
    fragments = whole_documents(as_lengths([3, 4]), options)
    anew = Rows(
        fragments=np.array([1, 0]), offsets=np.array([0, 2] if num_rows == 1 else [0, 1, 2])
    )
    before = np.array([0, 1, 2])
    found, offsets = chunks._place_again(fragments, before, options, lambda *given: anew)
    assert found.documents.tolist() == ([1, 0] if num_rows == 1 else [0, 1])
    assert offsets is (anew.offsets if num_rows == 1 else before)


def random_lengths(number: int, most: int) -> list[int]:
    lengths, seed = [], 5
    for _ in range(number):
        seed = (seed * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        lengths.append(1 + (seed >> 33) % most)
    return lengths


@pytest.mark.parametrize(
    ("strategy", "most", "options", "expected"),
    [
        ("best_fit", 300, {}, (740, "0b4475a39677e2e5")),
        ("best_fit", 400, {"max_documents_per_row": 4}, (1333, "b2fab4bf5bce84ae")),
        ("first_fit", 300, {"prefix": 2, "align": 8}, (767, "10568481b1bdbe10")),
        ("best_fit", 3000, {"stride": 100}, (7868, "8d9554b452675bc4")),
    ],
)
def test_the_rows_of_chunks_stay_the_same(monkeypatch, strategy, most, options, expected):
    monkeypatch.setattr(chunks, "CHUNK", 1000)
    monkeypatch.setattr(chunks, "MANY", 1000)
    monkeypatch.setattr(chunks, "BLOCK", 16)
    plan = make_plan(random_lengths(5000, most), 1024, strategy, **options)
    rows = [array.tolist() for array in plan._arrays()]
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    assert (plan.num_rows, digest[:16]) == expected
