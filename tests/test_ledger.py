from __future__ import annotations

import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire import Ledger
from quire.errors import InvalidOption, QuireError
from quire.ledger import REASONS, LedgerImbalance, RunningLedger, Tally, TokenTally

counts = st.integers(0, 2**40)
drops = st.dictionaries(st.sampled_from(sorted(REASONS)), counts, max_size=4)
tallies = st.builds(Tally, input=counts, emitted=counts, pending=counts, dropped=drops)
token_tallies = st.builds(
    TokenTally, input=counts, emitted=counts, dropped=drops, overlap=counts, padding=counts
)
ledgers = st.builds(Ledger, documents=tallies, tokens=token_tallies)


@given(ledgers, ledgers, ledgers)
def test_merging_is_associative_and_commutative(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Ledger() == a


@given(ledgers)
def test_a_ledger_survives_json_and_pickling(ledger):
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert Ledger.from_json(ledger.to_json()).to_json() == ledger.to_json()
    assert pickle.loads(pickle.dumps(ledger)) == ledger  # noqa: S301 (our own bytes)


def test_a_lost_or_repeated_token_is_an_imbalance():
    balanced = Ledger(tokens=TokenTally(input=5, emitted=2, pending=1, dropped={"truncated": 2}))
    assert balanced.check() is balanced
    lost = Ledger(tokens=TokenTally(input=5, emitted=2, dropped={"truncated": 2}))
    with pytest.raises(LedgerImbalance, match="tokens: 5 came in but 4 are accounted for"):
        lost.check()
    twice = Ledger(documents=Tally(input=1, emitted=2))
    with pytest.raises(LedgerImbalance, match="documents: 1 came in but 2 are accounted for"):
        twice.check()


def test_a_reason_that_never_occurred_counts_zero():
    assert Tally(dropped={"empty": 0}).dropped["empty"] == 0
    assert Tally(dropped={"empty": 0}) == Tally()


def test_counts_are_added_one_by_one():
    ours = TokenTally(
        input=1, emitted=2, pending=3, overlap=4, special=5, padding=6, dropped={"empty": 7}
    )
    more = TokenTally(
        input=10, emitted=20, pending=30, overlap=40, special=50, padding=60, dropped={"empty": 70}
    )
    assert ours + more == TokenTally(
        input=11, emitted=22, pending=33, overlap=44, special=55, padding=66, dropped={"empty": 77}
    )
    whole = Ledger(documents=Tally(input=1), tokens=ours) + Ledger(
        documents=Tally(input=2), tokens=more
    )
    assert whole == Ledger(documents=Tally(input=3), tokens=ours + more)
    assert Tally(dropped={"empty": 1}) + Tally(dropped={"too_long": 2}) == Tally(
        dropped={"empty": 1, "too_long": 2}
    )


def test_a_tally_says_what_was_dropped_and_what_is_missing():
    tally = Tally(input=20, emitted=1, pending=2, dropped={"empty": 3, "too_long": 4})
    assert (tally.num_dropped, tally.imbalance) == (7, 10)


def test_a_ledger_is_one_line_of_json_with_sorted_keys():
    ledger = Ledger(
        documents=Tally(input=4, emitted=1, dropped={"too_long": 2, "empty": 1, "too_short": 0}),
        tokens=TokenTally(input=7, emitted=7, special=2, padding=1),
    )
    assert ledger.to_json() == (
        '{"documents": {"dropped": {"empty": 1, "too_long": 2}, "emitted": 1, "input": 4, '
        '"pending": 0}, "tokens": {"dropped": {}, "emitted": 7, "input": 7, "overlap": 0, '
        '"padding": 1, "pending": 0, "special": 2}}'
    )
    assert repr(ledger.documents.dropped) == "Counter({'too_long': 2, 'empty': 1})"
    assert list(ledger.documents.dropped) == ["empty", "too_long"]


def test_counts_that_a_ledger_leaves_out_are_zero():
    assert Ledger.from_dict({}) == Ledger()
    assert Ledger.from_dict({"tokens": {"input": 1}}) == Ledger(tokens=TokenTally(input=1))
    assert Ledger.from_dict({"documents": {"input": 1}}) == Ledger(documents=Tally(input=1))


@pytest.mark.parametrize(
    ("ledger", "message"),
    [
        (
            Ledger(tokens=TokenTally(input=9, emitted=2, pending=1, dropped={"truncated": 4})),
            "tokens: 9 came in but 7 are accounted for (2 emitted, 4 dropped, 1 pending); please "
            "report this with the options you used",
        ),
        (
            Ledger(documents=Tally(input=1, emitted=2)),
            "documents: 1 came in but 2 are accounted for (2 emitted, 0 dropped, 0 pending); "
            "please report this with the options you used",
        ),
    ],
)
def test_the_error_about_an_imbalance_gives_every_count(ledger, message):
    with pytest.raises(LedgerImbalance) as raised:
        ledger.check()
    assert str(raised.value) == message


REASONS_KNOWN = (
    "bad_record, drop_last, empty, group_too_long, rank_equalize, row_too_short, "
    "skipped_oversized, too_long, too_short, truncated, unsupervised, unterminated"
)
TALLY_KEYS = "dropped, emitted, input, overlap, padding, pending, special, trained"


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (
            {"tokens": {"dropped": {"lost": 1}}},
            f"unknown reason 'lost'; known: {REASONS_KNOWN}",
        ),
        (
            {"tokens": {"dropped": [1]}},
            "ledger: dropped is [1] but must map reasons to counts",
        ),
        (
            {"tokens": {"dropped": {"empty": -1}}},
            "ledger: dropped['empty'] is -1 but must be an integer >= 0",
        ),
        ({"tokens": {"input": -1}}, "ledger: input is -1 but must be an integer >= 0"),
        ({"tokens": {"padding": 1.5}}, "ledger: padding is 1.5 but must be an integer >= 0"),
        ({"tokens": {"input": True}}, "ledger: input is True but must be an integer >= 0"),
        (
            {"tokens": {"inptu": 1}},
            f"unknown key of TokenTally 'inptu'; did you mean 'input'? known: {TALLY_KEYS}",
        ),
        (
            {"documents": {"overlap": 1}},
            "unknown key of Tally 'overlap'; known: dropped, emitted, input, pending",
        ),
        (
            {"docs": {}},
            "unknown key of Ledger 'docs'; did you mean 'documents'? known: documents, tokens",
        ),
        ({"tokens": []}, "TokenTally is a list but must be a mapping"),
        ({"documents": 3}, "Tally is a int but must be a mapping"),
        ([], "Ledger is a list but must be a mapping"),
    ],
)
def test_a_ledger_is_read_strictly(plain, message):
    with pytest.raises(InvalidOption) as raised:
        Ledger.from_dict(plain)
    assert str(raised.value) == message


def test_text_that_is_not_json_is_not_a_ledger():
    with pytest.raises(json.JSONDecodeError) as said:
        json.loads("{")
    with pytest.raises(InvalidOption) as raised:
        Ledger.from_json("{")
    assert str(raised.value) == f"a ledger is one line of JSON: {said.value}"


@given(ledgers)
def test_a_running_ledger_continues_from_a_ledger_and_from_its_own_state(ledger):
    pending = (ledger.documents.pending, ledger.tokens.pending)
    running = RunningLedger(ledger)
    assert running.ledger(pending) == ledger
    restored = RunningLedger()
    restored.load_state_dict(json.loads(json.dumps(running.state_dict())))
    assert restored.ledger(pending) == ledger


def test_a_copy_of_a_running_ledger_counts_independently():
    running = RunningLedger()
    running.add("input", documents=1, tokens=3)
    other = running.copy()
    other.add("input", documents=1, tokens=4)
    assert (running.ledger().tokens.input, other.ledger().tokens.input) == (3, 7)


@pytest.mark.parametrize("state", [{"inptu": [1, 2]}, {"input": [1, -2]}, {"input": [True, 2]}])
def test_a_running_ledger_rejects_unknown_kinds_and_values_that_are_not_counts(state):
    with pytest.raises(InvalidOption):
        RunningLedger().load_state_dict(state)


def test_drops_are_one_line_per_reason_in_order_with_the_right_plurals():
    ledger = Ledger(
        documents=Tally(input=3, dropped={"too_long": 1, "empty": 2}),
        tokens=TokenTally(input=9, dropped={"too_long": 8, "truncated": 1}),
    )
    assert ledger.drop_lines() == [
        "dropped as empty: 2 documents, 0 tokens",
        "dropped as too_long: 1 document, 8 tokens",
        "dropped as truncated: 0 documents, 1 token",
    ]
    assert Ledger().drop_lines() == []


def test_a_running_ledger_continues_from_a_ledger_with_reasons_of_documents_or_tokens_only():
    ledger = Ledger(
        documents=Tally(input=2, emitted=1, dropped={"empty": 1}),
        tokens=TokenTally(input=5, emitted=3, dropped={"truncated": 2}, special=1),
    )
    running = RunningLedger(ledger)
    assert running.ledger() == ledger
    state = running.state_dict()
    assert (state["input"], state["special"], state["padding"]) == ([2, 5], [0, 1], [0, 0])


def test_a_running_ledger_counts_nothing_that_is_not_given():
    counts = RunningLedger()
    counts.add("empty", documents=1)
    counts.add("special", tokens=4)
    assert counts.state_dict() == {"empty": [1, 0], "special": [0, 4]}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"inputs": [1, 1]}, "unknown kind of count 'inputs'; did you mean 'input'"),
        ({"input": [-1, 1]}, "ledger: input is -1 but must be an integer >= 0"),
        ({"empty": [1, True]}, "ledger: empty is True but must be an integer >= 0"),
    ],
)
def test_a_running_ledger_refuses_counts_that_cannot_be(state, said):
    counts = RunningLedger()
    counts.add("input", 1, 2)
    with pytest.raises(QuireError, match=re.escape(said)):
        counts.load_state_dict(state)
    assert counts.state_dict() == {"input": [1, 2]}


def test_a_running_ledger_loads_what_it_saved():
    counts = RunningLedger()
    for number, kind in enumerate(("input", "emitted", "padding", "too_long")):
        counts.add(kind, number, 10 + number)
    other = RunningLedger()
    other.load_state_dict(counts.state_dict())
    assert other.state_dict() == counts.state_dict()
    assert "padding" in other.state_dict()


def test_trained_tokens_are_a_share_of_the_tokens_in_rows_and_unknown_without_labels():
    tokens = TokenTally(input=8, emitted=8, overlap=1, special=3, trained=6)
    assert Ledger(tokens=tokens).trained_lines() == ["trained: 6 of 12 tokens (50.0%)"]
    assert Ledger(tokens=TokenTally(trained=0)).trained_lines() == ["trained: 0 of 0 tokens (0.0%)"]
    assert Ledger(tokens=TokenTally(input=8, emitted=8)).trained_lines() == []
