"""Rows filled by cuts: literal plans, and the same rows as a plain loop."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.errors import InvalidOption
from quire.plan import fill, plan_documents
from quire.plan.fragments import whole_documents
from quire.plan.options import PlanOptions


def rows(plan: quire.Plan) -> list[list[tuple[int, int, int]]]:
    return [[tuple(fragment) for fragment in row] for row in plan]


def test_plain_documents_are_wrapped_without_a_loop(monkeypatch):
    monkeypatch.setattr(fill, "pour", None)
    for overlong in ("split", "fill"):
        plan = quire.make_plan([3, 9], 5, "wrapped", overlong=overlong)
        assert rows(plan) == [[(0, 0, 3), (1, 0, 2)], [(1, 2, 7)], [(1, 7, 9)]]
        assert plan.starts.dtype == plan.stops.dtype == plan.documents.dtype == np.int32


def test_wrapped_does_not_repeat_what_was_cut_off_at_the_left():
    plan = quire.make_plan([3, 10], 6, "wrapped", overlong="truncate_left", stride=4)
    assert rows(plan) == [[(0, 0, 3), (1, 4, 7)], [(1, 4, 10)]]


def test_wrapped_respects_min_fragment_only_with_fill():
    options = {"max_length": 5, "strategy": "wrapped", "min_fragment": 2}
    assert rows(quire.make_plan([4, 4], **options)) == [[(0, 0, 4), (1, 0, 1)], [(1, 1, 4)]]
    assert rows(quire.make_plan([4, 4], **options, overlong="fill")) == [[(0, 0, 4)], [(1, 0, 4)]]


def test_a_document_longer_than_any_row_is_cut_into_pieces_that_are_long_enough():
    options = {"strategy": "wrapped", "overlong": "fill", "min_fragment": 3}
    assert rows(quire.make_plan([6], 5, **options)) == [[(0, 0, 3)], [(0, 3, 6)]]
    assert rows(quire.make_plan([2, 6], 5, **options)) == [[(0, 0, 2), (1, 0, 3)], [(1, 3, 6)]]
    with_tail = plan_documents([6], PlanOptions(max_length=5, **options, min_tail=2))
    assert rows(with_tail) == [[(0, 0, 3)], [(0, 3, 6)]]
    with_bos = quire.make_plan([7], 6, **options, prefix=1)
    assert rows(with_bos) == [[(0, 0, 4)], [(0, 4, 7)]]


def test_an_empty_row_takes_a_shorter_piece_rather_than_none():
    """A row holds three new tokens after the overlap, and four are left with a tail of three."""
    options = PlanOptions(
        max_length=7, strategy="wrapped", overlong="fill", stride=4, min_fragment=2, min_tail=3
    )
    assert rows(plan_documents([11], options)) == [[(0, 0, 7)], [(0, 3, 8)], [(0, 4, 11)]]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    max_length=st.integers(4, 20),
    stride=st.integers(0, 2),
    prefix=st.integers(0, 1),
    strategy=st.sampled_from(["wrapped", "best_fit"]),
)
def test_no_piece_that_fill_cuts_is_shorter_than_min_fragment(
    lengths, max_length, stride, prefix, strategy
):
    """Over half of a row, which no cut of a slightly longer document can give, is caught."""
    least = (max_length - prefix - stride + 1) // 2
    options = {"overlong": "fill", "stride": stride, "prefix": prefix}
    plan = quire.make_plan(lengths, max_length, strategy, min_fragment=max(1, least), **options)
    for row in plan:
        for piece in row:
            whole = lengths[piece.document]
            assert piece.stop - piece.start >= min(least, whole), (piece, whole)
    with pytest.raises(InvalidOption, match=f"lower min_fragment to {least} or raise max_length"):
        quire.make_plan(lengths, max_length, strategy, min_fragment=least + 1, **options)


def test_wrapped_keeps_alignment_prefix_and_cap():
    plan = quire.make_plan([5, 3, 6, 1], 10, "wrapped", align=4, prefix=1)
    assert rows(plan) == [[(0, 0, 5)], [(1, 0, 3), (2, 0, 3)], [(2, 3, 6), (3, 0, 1)]]
    capped = quire.make_plan([2, 2, 9, 1], 6, "wrapped", max_documents_per_row=2)
    assert rows(capped) == [[(0, 0, 2), (1, 0, 2)], [(2, 0, 6)], [(2, 6, 9), (3, 0, 1)]]


def test_the_emptiest_row_is_poured_into_the_largest_gaps():
    plan = quire.make_plan([6, 7, 5, 4], 8, overlong="fill")
    # best-fit: 7 | 6 | 5 | 4; 22 tokens need 3 rows, so the 4 is poured: 3 of it next to the 5
    assert rows(plan) == [[(1, 0, 7)], [(0, 0, 6), (3, 3, 4)], [(2, 0, 5), (3, 0, 3)]]


def test_a_poured_continuation_is_cut_by_its_new_tokens():
    options = {"max_length": 12, "stride": 1, "overlong": "fill"}
    plan = quire.make_plan([18, 8, 8, 8], **options, min_fragment=3)
    # 11:18 is poured: 11 is repeated, so a gap of 4 takes 3 new tokens.
    assert rows(plan) == [
        [(0, 0, 12)],
        [(1, 0, 8), (0, 11, 15)],
        [(2, 0, 8), (0, 14, 18)],
        [(3, 0, 8)],
    ]
    # Here a gap of 3 would take 2, one too few, and 11:19 and the 5 need a row each as before.
    assert quire.make_plan([19, *[9] * 5, 5], **options, min_fragment=3).num_rows == 8


def test_fill_stops_where_rows_are_full_enough():
    lengths = np.random.default_rng(7).integers(1, 1001, 10_000)
    plan = quire.make_plan(lengths, 1000, overlong="fill")
    assert plan.num_rows == int(lengths.sum() / 999)
    few = quire.make_plan(lengths[:100], 1000, overlong="fill")
    assert few.num_rows == -(-int(lengths[:100].sum()) // 1000)
    # Two rows could be saved, but 99.95 % is full enough.
    assert quire.make_plan([9995] * 4000, 10_000, overlong="fill").num_fragments == 4000


def test_rows_of_more_tokens_than_a_float_can_count_are_filled_exactly():
    third = 2**60 // 3
    length = 2 * third - 1
    plan = quire.make_plan([length] * 3, 3 * third, "first_fit", overlong="fill")
    assert rows(plan) == [
        [(1, 0, length), (0, 0, third + 1)],
        [(2, 0, length), (0, third + 1, length)],
    ]


@pytest.mark.parametrize("seed", range(24))
def test_fill_gives_the_rows_of_a_plain_loop(seed):
    rng = random.Random(seed)
    max_length, cap = rng.choice([9, 16, 40]), rng.choice([None, None, 3])
    options = {
        "max_length": max_length,
        "prefix": rng.choice([0, 1]),
        "min_fragment": rng.choice([1, 2, max_length // 4]),
        "max_documents_per_row": cap,
    }
    shortest = rng.choice([1, max_length // 3, max_length // 2])
    lengths = [rng.randint(shortest, max_length - 1) for _ in range(rng.randint(1, 200))]
    before = rows(quire.make_plan(lengths, **options))
    after = rows(quire.make_plan(lengths, **options, overlong="fill"))
    assert after == filled_by_hand(before, PlanOptions(**options))


def filled_by_hand(plan: list[list[tuple[int, int, int]]], options: PlanOptions) -> list:
    """The plan with its emptiest rows poured into the others, or unchanged if that saves none."""
    used = [sum(options.prefix + stop for _, _, stop in row) for row in plan]
    enough = max(-(-sum(used) // options.max_length), int(sum(used) / (0.999 * options.max_length)))
    by_use = sorted(range(len(plan)), key=lambda row: used[row])
    dissolved = by_use[: max(0, len(plan) - enough)]
    gaps = by_use[len(dissolved) :]
    filled = [list(row) for row in plan]
    pouring = [fragment for row in sorted(dissolved) for fragment in plan[row]]
    place = 0
    for document, first, stop in pouring:
        start = first
        while start < stop:
            if place == len(gaps):
                gaps.append(len(filled))
                filled.append([])
            row = filled[gaps[place]]
            room = options.max_length - sum(options.prefix + b - a for _, a, b in row)
            piece = _piece(room - options.prefix, stop - start, row, options)
            if piece:
                row.append((document, start, start + piece))
                start += piece
            if start < stop:
                place += 1
    if len(filled) - len(plan) >= len(dissolved):
        return plan
    return [row for number, row in enumerate(filled) if number not in dissolved]


def _piece(room: int, left: int, row: list, options: PlanOptions) -> int:
    if len(row) == (options.max_documents_per_row or len(row) + 1) or room < 1:
        return 0
    if left <= room:
        return left
    piece = min(room, left - options.min_fragment)
    return piece if piece >= options.min_fragment else 0


def test_a_plan_of_only_full_rows_is_unchanged():
    whole = whole_documents(np.array([8, 8]), PlanOptions(max_length=8))
    options = PlanOptions(max_length=8, overlong="fill")
    placed = fill.Rows.of_row_numbers(np.array([1, 0]))
    fragments, offsets = fill.close_gaps(whole, placed, options)
    assert fragments.documents.tolist() == [1, 0]
    assert offsets.tolist() == [0, 1, 2]
