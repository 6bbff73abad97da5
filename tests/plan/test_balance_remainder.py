"""Rows made a multiple of the ranks: dropped, repeated or split, and counted."""

from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.errors import InvalidOption
from quire.ledger import Ledger, Tally, TokenTally
from quire.plan.balance import even_rows


def rows_of(counts: list[int]) -> quire.Plan:
    """A plan whose rows hold these numbers of documents, of one token each."""
    plan = quire.make_plan([1] * sum(counts), max_length=max(counts))
    padding = len(counts) * plan.max_length - sum(counts)
    ledger = Ledger(
        documents=Tally(input=sum(counts), emitted=sum(counts)),
        tokens=TokenTally(input=sum(counts), emitted=sum(counts), padding=padding),
    )
    return quire.Plan(
        row_offsets=np.append(0, np.cumsum(counts)),
        documents=plan.documents,
        starts=plan.starts,
        stops=plan.stops,
        options=plan.options,
        ledger=ledger,
        fingerprint=plan.fingerprint,
    )


@pytest.mark.parametrize("remainder", ["drop", "repeat", "split"])
def test_rows_that_are_even_stay_as_they_are(remainder):
    plan = rows_of([3, 1, 2, 2])
    rows, same, ledger = even_rows(plan, 2, remainder)
    assert rows.tolist() == [0, 1, 2, 3]
    assert same is plan
    assert ledger is plan.ledger


def test_rows_are_repeated_from_the_first_and_counted_as_overlap():
    plan = quire.make_plan([8, 7, 5], max_length=10, prefix=1)
    rows, same, ledger = even_rows(plan, 2, "repeat")
    assert rows.tolist() == [0, 1, 2, 0]
    assert same is plan
    assert ledger == Ledger(
        documents=Tally(input=3, emitted=3),
        tokens=TokenTally(input=20, emitted=20, overlap=8, special=4, padding=8),
    )


def test_few_rows_are_repeated_as_often_as_it_takes():
    plan = quire.make_plan([8, 7, 5], max_length=10, prefix=1)
    rows, _, ledger = even_rows(plan, 7, "repeat")
    assert rows.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert ledger.tokens == TokenTally(
        input=20, emitted=20, overlap=20 + 8, special=7, padding=7 + 7 + 1
    )


def test_overlap_that_was_there_before_rows_are_repeated_stays():
    plan = quire.make_plan([14, 8], max_length=8, stride=2)  # 0:8, 6:14 and the other, all full
    ledger = even_rows(plan, 2, "repeat")[2]
    assert (plan.ledger.tokens.overlap, ledger.tokens.overlap) == (2, 10)


def test_dropped_rows_lose_only_tokens_that_are_in_no_other_row():
    # Rows [0:6], then 0:7, 5:12, 10:17 and 15:18 of document 1, then [0:5] and [0:4].
    plan = quire.make_plan([6, 18, 5, 4, 0], max_length=8, strategy="greedy", stride=2, prefix=1)
    assert plan.row_lengths.tolist() == [7, 8, 8, 8, 4, 6, 5]
    rows, same, ledger = even_rows(plan, 4, "drop")
    assert rows.tolist() == [0, 1, 2, 3]
    assert same is plan
    # The last piece of document 1 repeats two tokens of a row that stays: one token is lost.
    assert ledger == Ledger(
        documents=Tally(input=5, emitted=2, dropped={"empty": 1, "rank_equalize": 2}),
        tokens=TokenTally(
            input=33, emitted=23, dropped={"rank_equalize": 10}, overlap=4, special=4, padding=1
        ),
    )


def test_what_was_dropped_before_stays_counted():
    plan = quire.make_plan([3, 9, 2, 8], max_length=8, strategy="greedy", overlong="drop")
    ledger = even_rows(plan, 3, "drop")[2]  # of two rows, none is left
    assert ledger == Ledger(
        documents=Tally(input=4, emitted=0, dropped={"too_long": 1, "rank_equalize": 3}),
        tokens=TokenTally(input=22, emitted=0, dropped={"too_long": 9, "rank_equalize": 13}),
    )


@pytest.mark.parametrize(
    ("counts", "multiple", "offsets"),
    [
        ([4, 3, 1], 5, [0, 2, 4, 6, 7, 8]),  # the fullest are cut, each once
        ([2, 4, 1], 4, [0, 2, 4, 6, 7]),
        ([5], 2, [0, 3, 5]),  # the larger part first
        ([4], 4, [0, 1, 2, 3, 4]),  # every cut that there is
        ([3, 1, 1], 5, [0, 1, 2, 3, 4, 5]),  # one row is cut twice, the others have no cut
        ([2] * 41, 42, [0, 1, *range(2, 83, 2)]),  # of equal ones the first
        (
            [3, 2] * 20,
            43,
            [0, 2, 3, 5, 7, 8, 10, 12, 13, *(5 * i + j for i in range(3, 20) for j in (0, 3)), 100],
        ),
        ([2, 3] * 20, 41, [0, 2, 4, *(5 * i + j for i in range(1, 20) for j in (0, 2)), 100]),
    ],
)
def test_rows_are_split_between_documents_the_fullest_first(counts, multiple, offsets):
    plan = rows_of(counts)
    rows, split, ledger = even_rows(plan, multiple, "split")
    assert split.row_offsets.tolist() == offsets
    assert split.row_offsets.dtype == np.int64
    assert rows.tolist() == list(range(len(offsets) - 1))
    assert ledger is split.ledger
    assert ledger.documents == plan.ledger.documents
    assert ledger.tokens.emitted == sum(counts)
    assert ledger.tokens.padding == multiple * plan.max_length - sum(counts)
    assert split.documents is plan.documents


def test_rows_with_too_few_cuts_are_rejected_with_the_alternatives():
    with pytest.raises(InvalidOption) as caught:
        even_rows(rows_of([1, 2, 1]), 5, "split")
    assert str(caught.value) == (
        "remainder='split' needs 2 more cuts between documents but the rows allow only 1; "
        "use remainder='drop' or 'repeat'"
    )
