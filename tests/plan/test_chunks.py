"""Very many documents are planned a chunk at a time; here a chunk is short."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire import make_plan
from quire.plan import chunks
from quire.plan.fragments import Rows
from quire.plan.plan import Plan


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK", 8)
        patch.setattr(chunks, "MANY", 16)
        patch.setattr(chunks, "BLOCK", 2)
        yield


def as_one(lengths: list[int], max_length: int, **options: object) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MANY", len(lengths))
        return make_plan(lengths, max_length, **options)


def documents_of(plan: Plan) -> list[list[int]]:
    return [[fragment.document for fragment in row] for row in plan]


def test_the_emptiest_row_of_every_chunk_is_placed_again() -> None:
    # Blocks of two go to three chunks in turn: 6 9 9 9 9 9, then 9 9 4 9 9 9, then 9 9 9 4 4.
    lengths = [6, 9, 9, 9, 9, 9, 9, 9, 4, 9, 9, 4, 9, 9, 9, 9, 4]
    # Alone, they would end with the rows [6], [4] and [4, 4].
    assert documents_of(make_plan(lengths, max_length=10)) == [
        *([1], [6], [7], [12], [13]),
        *([2], [3], [9], [14], [15]),
        *([4], [5], [10]),
        *([0, 8], [11, 16]),
    ]


def test_rows_are_unchanged_if_placing_them_again_gains_nothing() -> None:
    plan = make_plan([9] * 17, max_length=10)
    assert sorted(documents_of(plan)) == [[document] for document in range(17)]


def test_up_to_a_limit_documents_are_planned_without_chunks() -> None:
    lengths = [6, 4] * 8
    assert make_plan(lengths, max_length=10) == as_one(lengths, max_length=10)


def test_documents_sorted_by_length_fill_their_rows() -> None:
    lengths = [6] * 24 + [4] * 24
    plan = make_plan(lengths, max_length=10)
    assert plan.num_rows == 24
    assert plan != as_one(lengths, max_length=10)  # it was planned in chunks


def test_chunks_that_need_more_rows_are_replaced_by_a_plan_of_the_whole() -> None:
    # Of three chunks one gets all the 6s: blocks of two, in turn.
    lengths = [6, 6, 4, 4, 1, 1] * 4
    whole = as_one(lengths, max_length=10)
    assert make_plan(lengths, max_length=10) == whole


def test_a_chunk_without_tokens_makes_no_rows() -> None:
    plan = make_plan([0] * 8 + [3] * 8 + [0] * 8, max_length=6)
    assert plan.num_rows == 4
    assert plan.ledger.documents.dropped["empty"] == 16


def test_strategies_that_keep_the_order_and_fill_are_not_planned_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*arguments: object) -> Rows:
        raise AssertionError("in chunks")

    monkeypatch.setattr(chunks, "place_chunks", refuse)
    for options in ({"strategy": "greedy"}, {"strategy": "wrapped"}, {"overlong": "fill"}):
        assert make_plan([5] * 40, 10, **options).num_rows == 20
    with pytest.raises(AssertionError, match="in chunks"):
        make_plan([5] * 40, 10)


POLICIES = ("split", "truncate", "truncate_left", "drop")


@given(
    lengths=st.lists(st.integers(0, 30), min_size=17, max_size=60),
    strategy=st.sampled_from(["best_fit", "first_fit"]),
    overlong=st.sampled_from(POLICIES),
    prefix=st.integers(0, 2),
    align=st.sampled_from([1, 2, 4]),
    stride=st.integers(0, 3),
    cap=st.none() | st.integers(1, 4),
    shuffle=st.booleans(),
)
@settings(deadline=None)
def test_chunks_hold_the_same_fragments_and_have_the_same_ledger(
    lengths: list[int], cap: int | None, **options: object
) -> None:
    options |= {"max_documents_per_row": cap}
    in_chunks, whole = (plan(lengths, 16, **options) for plan in (make_plan, as_one))
    assert fragments_of(in_chunks) == fragments_of(whole)
    assert in_chunks.ledger.documents == whole.ledger.documents
    assert in_chunks.ledger.tokens.emitted == whole.ledger.tokens.emitted
    assert in_chunks.ledger.tokens.dropped == whole.ledger.tokens.dropped
    assert in_chunks.num_rows <= whole.num_rows + 1
    assert make_plan(lengths, 16, **options) == in_chunks


def fragments_of(plan: Plan) -> list[tuple[int, ...]]:
    columns = (plan.documents, plan.starts, plan.stops)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("mean", [4.7, 6.3, 7.0])
def test_rows_are_as_few_as_those_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, mean: float
) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 10_000)
    lengths = np.random.default_rng(0).lognormal(mean, 0.8, 200_000).astype(int) + 1
    in_chunks, whole = make_plan(lengths, 4096), as_one(lengths, 4096)
    assert in_chunks != whole
    assert in_chunks.num_rows - whole.num_rows <= whole.num_rows // 1000 + 1


@pytest.mark.parametrize(
    ("overlong", "rows"), [("truncate", 20), ("truncate_left", 20), ("drop", 0)]
)
def test_documents_that_are_not_split_need_no_room_for_their_parts(
    overlong: str, rows: int
) -> None:
    assert make_plan([1 << 45] * 20, max_length=8, overlong=overlong).num_rows == rows
