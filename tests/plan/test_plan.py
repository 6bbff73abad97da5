from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.errors import PlanError
from quire.ledger import Ledger, Tally, TokenTally
from quire.plan import PlanOptions
from quire.plan import plan as plan_module

LENGTHS = [6, 3, 5, 0, 21]


@pytest.fixture
def plan() -> quire.Plan:
    return quire.make_plan(LENGTHS, 8, stride=1)


def rebuilt(plan: quire.Plan, **changed) -> quire.Plan:
    names = ("row_offsets", "documents", "starts", "stops", "options", "ledger", "fingerprint")
    return quire.Plan(**{**{name: getattr(plan, name) for name in names}, **changed})


def test_a_plan_is_flat_arrays_and_a_sequence_of_rows(plan):
    assert plan.num_rows == len(plan) == len(list(plan)) == 5
    assert plan.num_fragments == sum(len(row) for row in plan) == 6
    assert plan[-1] == list(plan)[-1]
    assert plan.row_lengths.tolist() == [sum(f.stop - f.start for f in row) for row in plan]
    assert plan.max_length == 8
    assert repr(plan) == "Plan(5 rows of 8, 6 fragments, 92.500% full, exact_fit)"
    assert plan.lower_bound == 5
    with pytest.raises(IndexError):
        plan[5]


def test_the_arrays_are_read_only(plan):
    for array in (plan.row_offsets, plan.documents, plan.starts, plan.stops):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_row_lengths_count_the_prefix_and_utilization_does_not():
    plan = quire.make_plan([3, 3], 8, prefix=1)
    assert plan.row_lengths.tolist() == [8]
    assert plan.utilization == 6 / 8


ENDS = "row_offsets must run from 0 to the number of fragments; plan again"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"row_offsets": [0, 1, 1, 6]},
            "row 1: a row has 0 fragments but needs at least 1; plan again",
        ),
        ({"row_offsets": []}, ENDS),
        ({"row_offsets": [1, 6]}, ENDS),
        ({"row_offsets": [-1, 6]}, ENDS),
        ({"row_offsets": [0, 5]}, ENDS),
        ({"row_offsets": [0, 7]}, ENDS),
        ({"documents": [4, 4, 4, 0, 2]}, ENDS),
        ({"starts": [0, 7, 14, 0, 0]}, ENDS),
        ({"stops": [8, 15, 21, 6, 5]}, ENDS),
        (
            {"row_offsets": [0, 1, 2, 3, 4, 5, 6], "stops": [8, 15, 21, 6, 9, 10]},
            "row 4: fragments take up 9 tokens but a row holds 8; plan again",
        ),
        (
            {"row_offsets": [0, 6]},
            "row 0: fragments take up 37 tokens but a row holds 8; plan again",
        ),
        (
            {"documents": [0, 4, 4, 4, 2, 5]},
            "fragment 5: document 5 is not one of 5; plan again",
        ),
        (
            {"documents": [0, 4, -1, 4, 2, 1]},
            "fragment 2: document -1 is not one of 5; plan again",
        ),
        (
            {"starts": [0, 7, -1, 0, 0, 0]},
            "fragment 2: start -1 is negative or not below its stop; plan again",
        ),
        (
            {"starts": [7, 7, 14, 0, 5, 0]},
            "fragment 4: start 5 is negative or not below its stop; plan again",
        ),
        (
            {"options": PlanOptions(max_length=8, max_documents_per_row=1)},
            "row 4: a row has 2 fragments but may have at most 1; plan again",
        ),
        (
            {"stops": [7, 15, 21, 6, 5, 3]},
            "the fragments hold 36 tokens but the ledger counts 35 emitted, 2 repeated and 0 EOS; "
            "plan again",
        ),
        (
            {"row_offsets": [0], "documents": [], "starts": [], "stops": []},
            "the fragments hold 0 tokens but the ledger counts 35 emitted, 2 repeated and 0 EOS; "
            "plan again",
        ),
    ],
)
def test_a_plan_that_contradicts_itself_is_rejected(plan, changed, message):
    arrays = {
        name: value if isinstance(value, PlanOptions) else np.array(value, dtype=np.int64)
        for name, value in changed.items()
    }
    with pytest.raises(PlanError) as caught:
        rebuilt(plan, **arrays)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ([6, 3, 5, 0, 20], "5 documents with 34 tokens"),
        ([3, 6, 5, 0, 21], "5 documents with 35 tokens"),
        ([6, 3, 5, 0], "4 documents with 14 tokens"),
        ([], "0 documents with 0 tokens"),
    ],
)
def test_other_lengths_are_rejected(plan, other, found):
    plan.check_lengths(np.array(LENGTHS, np.int8))
    with pytest.raises(PlanError) as caught:
        plan.check_lengths(other)
    assert str(caught.value) == (
        f"the plan was made for 5 documents with 35 tokens, but these are {found} "
        "(or the same lengths in another order); plan again, or use the documents that were planned"
    )


@pytest.mark.parametrize("other", [[65_537], [1, 1, 0], [1 << 16, 0]])
def test_lengths_of_another_width_have_another_fingerprint(other):
    with pytest.raises(PlanError, match="2 documents with 2 tokens"):
        quire.make_plan([1, 1], 8).check_lengths(other)


def test_a_fragment_beyond_its_document_is_rejected():
    plan = quire.make_plan([5, 3], 8)
    swapped = rebuilt(plan, documents=np.array([1, 0]))
    with pytest.raises(PlanError, match=r"^fragment 0: stop 5 is beyond its document; plan again$"):
        swapped.check_lengths([5, 3])


def test_the_ledger_of_a_plan_adds_up_by_hand(plan):
    assert plan.ledger == Ledger(
        documents=Tally(input=5, emitted=4, dropped={"empty": 1}),
        tokens=TokenTally(input=35, emitted=35, overlap=2, padding=3),
    )


def test_the_fingerprint_is_the_same_on_every_machine(plan):
    assert plan.fingerprint == "2dff23fea2663bdee484ecd102ba4bf8be014e549638e6d2364b543872072b38"
    wide = quire.make_plan([1 << 16, 1 << 32, 7], 1 << 33)
    assert wide.fingerprint == "b71eee9e0dd45114ed477acc75d903298a0389512027638ffdae7fc6e0089732"


def test_plans_are_equal_if_rows_options_and_lengths_are(plan):
    assert plan == quire.make_plan(LENGTHS, 8, stride=1)
    assert plan != quire.make_plan(LENGTHS, 8, stride=1, seed=1)  # the same rows
    assert plan != rebuilt(plan, fingerprint="another")
    assert plan != rebuilt(plan, row_offsets=np.arange(7))
    assert plan != "a plan"
    with pytest.raises(TypeError, match="unhashable"):
        hash(plan)


def test_rows_are_summed_some_at_a_time(monkeypatch):
    lengths = [3, 5, 2, 8, 6, 1, 7]
    plan = quire.make_plan(lengths, 8, "greedy")
    expected = [sum(f.stop - f.start for f in row) for row in plan]
    for rows in (1, 2, 3, plan.num_rows):
        monkeypatch.setattr(plan_module, "_ROWS_AT_A_TIME", rows)
        assert rebuilt(plan).row_lengths.tolist() == expected


def test_a_plan_without_rows_has_no_row_lengths():
    none = quire.make_plan([], 8).row_lengths
    assert (none.tolist(), none.dtype) == ([], np.int64)


def test_tokens_beyond_the_integers_of_a_float_are_counted_exactly():
    plan = quire.make_plan([2**60 + 1, 2**60], 2**60 + 1, "greedy")
    assert plan.row_lengths.tolist() == [2**60 + 1, 2**60]
    swapped = rebuilt(plan, documents=np.array([1, 0]))
    with pytest.raises(PlanError, match=f"stop {2**60 + 1} is beyond its document"):
        swapped.check_lengths([2**60 + 1, 2**60])


def test_a_row_may_be_full_and_hold_as_many_fragments_as_allowed():
    plan = quire.make_plan([4, 4], 8, max_documents_per_row=2)
    assert (plan.num_rows, plan.utilization) == (1, 1.0)


def test_the_bound_is_that_of_the_fragments_and_not_of_the_documents():
    assert quire.make_plan([5, 5, 5], 10, prefix=1).lower_bound == 3
    assert quire.make_plan([1] * 6, 10, max_documents_per_row=2).lower_bound == 3


def test_the_picture_of_a_plan_has_every_fragment_of_the_first_twelve_rows():
    html = quire.make_plan([5, 3, 9], 8, prefix=1, overlong="truncate", shuffle=False)._repr_html_()
    assert html.count("<span") == 3
    assert "document 2, tokens 0-6" in html
    assert quire.make_plan([8] * 20, 8)._repr_html_().count("<span") == 12
