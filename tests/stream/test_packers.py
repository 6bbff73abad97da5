"""One contract for every packer."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidState
from quire.plan import PlanOptions
from quire.stream.packers import PACKERS, PackerOptions
from quire.stream.packers.first_fit import first_fit_rows, planned_rows

VOCAB = 1 << 16
KINDS = {
    "wrapped": {},
    "first_fit": {"buffer_size": 4},
    "first_fit of one": {"buffer_size": 1},
    "first_fit capped": {"buffer_size": 4, "max_documents_per_row": 2},
    "online": {"buffer_size": 4},
    "online capped": {"buffer_size": 3, "max_documents_per_row": 2},
}
kinds = pytest.mark.parametrize("kind", KINDS)
lengths_of_documents = st.lists(st.integers(1, 30), max_size=40)


def packer_of(kind, size=8):
    options = PackerOptions(window_size=size, vocab_size=VOCAB, min_tail=2, **KINDS[kind])
    return PACKERS[kind.split()[0]](options)


def documents_of(lengths):
    ends = np.cumsum(lengths)
    return [
        np.arange(end - length, end, dtype=np.int32)
        for end, length in zip(ends, lengths, strict=True)
    ]


def pack(packer, documents):
    windows = [window for document in documents for window in packer.add(document)]
    return windows + packer.flush()


def fragments_of(window):
    return np.split(window.tokens, np.cumsum(window.lengths)[:-1])


@kinds
@settings(max_examples=25)
@given(lengths=lengths_of_documents, size=st.integers(2, 12))
def test_every_token_leaves_exactly_once(kind, lengths, size):
    windows = pack(packer_of(kind, size), documents_of(lengths))
    tokens = [token for window in windows for token in window.tokens.tolist()]
    assert sorted(tokens) == list(range(sum(lengths)))


@kinds
@settings(max_examples=25)
@given(lengths=lengths_of_documents, size=st.integers(2, 12))
def test_a_fragment_is_of_one_document_and_in_its_order(kind, lengths, size):
    bounds = np.cumsum(lengths)
    for window in pack(packer_of(kind, size), documents_of(lengths)):
        assert 1 <= len(window.tokens) <= size
        assert sum(window.lengths) == len(window.tokens)
        for fragment in fragments_of(window):
            assert len(fragment)
            assert (np.diff(fragment) == 1).all()
            assert len(set(np.searchsorted(bounds, fragment, side="right"))) == 1


@kinds
@settings(max_examples=25)
@given(lengths=lengths_of_documents)
def test_documents_are_counted_in_the_window_where_they_start(kind, lengths):
    windows = pack(packer_of(kind), documents_of(lengths))
    starts = set((np.cumsum(lengths) - lengths).tolist())
    for window in windows:
        opens = sum(int(fragment[0]) in starts for fragment in fragments_of(window))
        assert window.num_documents == opens
    assert sum(window.num_documents for window in windows) == len(lengths)


@kinds
@settings(max_examples=25)
@given(lengths=lengths_of_documents)
def test_documents_are_counted_where_they_end(kind, lengths):
    windows = pack(packer_of(kind), documents_of(lengths))
    stops = set((np.cumsum(lengths) - 1).tolist())
    for window in windows:
        ends = sum(int(fragment[-1]) in stops for fragment in fragments_of(window))
        assert window.num_ends == ends
    assert sum(window.num_ends for window in windows) == len(lengths)


@kinds
@settings(max_examples=25)
@given(lengths=lengths_of_documents, size=st.integers(2, 12), data=st.data())
def test_a_packer_restored_from_bytes_continues_exactly(kind, lengths, size, data):
    documents = documents_of(lengths)
    left_at = data.draw(st.integers(0, len(documents)))
    packer = packer_of(kind, size)
    for document in documents[:left_at]:
        packer.add(document)
    restored = packer_of(kind, size)
    snapshot = packer.snapshot()
    rest = pack(packer, documents[left_at:])
    state = json.loads(json.dumps(snapshot()))  # asked for after the packer went on
    restored.load_state_dict(state)
    assert restored.snapshot()() == state
    again = pack(restored, documents[left_at:])
    assert [(w.tokens.tolist(), *w[1:]) for w in again] == [
        (w.tokens.tolist(), *w[1:]) for w in rest
    ]


@kinds
@settings(max_examples=25)
@given(lengths=lengths_of_documents)
def test_pending_tokens_are_those_added_and_not_yet_emitted(kind, lengths):
    packer = packer_of(kind)
    came = left = num_documents = num_ends = 0
    for document in documents_of(lengths):
        windows = packer.add(document)
        came += len(document)
        left += sum(len(window.tokens) for window in windows)
        num_documents += 1 - sum(window.num_documents for window in windows)
        num_ends += 1 - sum(window.num_ends for window in windows)
        assert packer.pending == (num_documents, num_ends, came - left)
    packer.flush()
    assert packer.pending == (0, 0, 0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "wrapped"])
@settings(max_examples=25)
@given(lengths=lengths_of_documents, size=st.integers(2, 12))
def test_the_last_fragment_of_a_long_document_never_has_one_token(kind, lengths, size):
    """It is EOS, which no token would predict. Otherwise cuts are at every ``size``."""
    ends = np.cumsum(lengths)
    whole = {int(end - 1) for end, length in zip(ends, lengths, strict=True) if length == 1}
    found = []
    for window in pack(packer_of(kind, size), documents_of(lengths)):
        found += [fragment.tolist() for fragment in fragments_of(window)]
    alone = {fragment[-1] for fragment in found if len(fragment) == 1}
    assert alone & {int(end - 1) for end in ends} == whole
    assert len(found) == sum(-(-length // size) for length in lengths)


@settings(max_examples=300)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=40),
    size=st.integers(2, 12),
    cap=st.sampled_from([None, 1, 2, 3]),
    tail=st.sampled_from([1, 2]),
)
def test_a_small_buffer_is_packed_into_the_windows_of_the_planner(lengths, size, cap, tail):
    options = PlanOptions(
        max_length=size, strategy="first_fit", max_documents_per_row=cap, min_tail=tail
    )
    assert first_fit_rows(lengths, options) == planned_rows(lengths, options)


def test_a_large_buffer_is_packed_by_the_planner(monkeypatch):
    lengths = [1 + number % 13 for number in range(200)]
    options = PlanOptions(max_length=8, strategy="first_fit", min_tail=2)
    scanned = first_fit_rows(lengths, options)
    monkeypatch.setattr("quire.stream.packers.first_fit._MAX_SCANNED", 100)
    monkeypatch.setattr("quire.stream.packers.first_fit.scanned_rows", None)
    assert first_fit_rows(lengths, options) == scanned


@kinds
def test_an_empty_packer_flushes_nothing(kind):
    assert packer_of(kind).flush() == []


@pytest.mark.parametrize("kind", ["first_fit capped", "online capped"])
@settings(max_examples=25)
@given(lengths=lengths_of_documents)
def test_max_documents_per_row_is_respected(kind, lengths):
    for window in pack(packer_of(kind), documents_of(lengths)):
        assert len(window.lengths) <= 2


def test_the_wrapped_packer_keeps_the_order_and_pads_only_the_last_window():
    lengths = [3, 20, 1, 7, 9, 2]
    windows = pack(packer_of("wrapped"), documents_of(lengths))
    assert np.concatenate([w.tokens for w in windows]).tolist() == list(range(sum(lengths)))
    assert [len(w.tokens) for w in windows] == [8, 8, 8, 8, 8, 2]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "first_fit of one"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda state: "a string",
        lambda state: {},
        lambda state: {**state, "more": 1},
        lambda state: {**state, "tokens": None},
        lambda state: {**state, "tail" if "tail" in state else "continues": 0},
        lambda state: {**state, "tail" if "tail" in state else "continues": 3},
        lambda state: {**state, "tokens": {**state["tokens"], "data": "!"}},
        lambda state: {**state, "tokens": {**state["tokens"], "data": 3}},
        lambda state: {**state, "tokens": {**state["tokens"], "data": ""}},
        lambda state: {**state, "tokens": {**state["tokens"], "width": 9}},
        lambda state: {**state, "tokens": {**state["tokens"], "width": True}},
        lambda state: {**state, "tokens": {**state["tokens"], "lengths": [0, 3]}},
        lambda state: {**state, "tokens": {**state["tokens"], "lengths": [-1, 4]}},
        lambda state: {**state, "tokens": {**state["tokens"], "lengths": "3"}},
        lambda state: {**state, "tokens": {"lengths": [1], "width": 4, "data": "/////w=="}},
        lambda state: {**state, "tokens": {"lengths": [1], "width": 3, "data": "////"}},
        lambda state: {
            **state,
            "tokens": {"lengths": [1] * 64, "width": 1, "data": "AAAA" * 21 + "AA=="},
        },
    ],
)
def test_a_damaged_state_is_refused(kind, damage):
    packer = packer_of(kind)
    packer.add(np.array([5, 6, 7], np.int32))
    with pytest.raises(InvalidState):
        packer_of(kind).load_state_dict(damage(packer.snapshot()()))
