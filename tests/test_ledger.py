from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire import Ledger
from quire.errors import InvalidOption
from quire.ledger import REASONS, LedgerImbalance, Tally, TokenTally

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


def test_a_token_that_is_nowhere_is_noticed():
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


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"tokens": {"dropped": {"lost": 1}}}, "unknown reason 'lost'"),
        ({"tokens": {"dropped": [1]}}, "dropped is"),
        ({"tokens": {"input": -1}}, "input is -1 but a count is an integer >= 0"),
        ({"tokens": {"input": 1.5}}, "input is 1.5"),
        ({"tokens": {"input": True}}, "input is True"),
        ({"tokens": {"inptu": 1}}, "unknown key of TokenTally 'inptu'; did you mean 'input'"),
        ({"documents": {"overlap": 1}}, "unknown key of Tally 'overlap'"),
        ({"docs": {}}, "unknown key of Ledger 'docs'"),
        ({"tokens": []}, "TokenTally is read from a mapping, not from list"),
        ([], "Ledger is read from a mapping"),
    ],
)
def test_a_ledger_is_read_strictly(plain, message):
    with pytest.raises(InvalidOption, match=message):
        Ledger.from_dict(plain)


def test_what_is_not_json_is_no_ledger():
    with pytest.raises(InvalidOption, match="one line of JSON"):
        Ledger.from_json("{")
