"""The rules that hold for every packer: conservation, boundaries, labels, determinism."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from tests.contracts.packers import (
    BOS,
    EOS,
    FIRST,
    NO_LABEL,
    PACKERS,
    Packed,
    Packer,
    Row,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
LENGTH = 8
CORPORA = {
    "one document": [3],
    "short documents": [3, 2, 3, 1, 2],
    "full rows": [8, 8, 8],
    "one token each": [1] * 11,
    "longer than a row": [20, 3, 9, 17, 1],
    "empty documents": [0, 3, 0, 5],
    "a bit of everything": [5, 3, 9, 1, 14, 2, 6, 30, 4, 4, 7, 1, 12, 3, 8, 2],
}


def documents_of(lengths: list[int]) -> list[list[int]]:
    """Documents of these lengths in which no token occurs twice."""
    ends = list(itertools.accumulate(lengths, initial=FIRST))
    return [list(range(start, end)) for start, end in itertools.pairwise(ends)]


def pack(name: str, lengths: list[int], max_length: int = LENGTH, seed: int = 0) -> Packed:
    with tempfile.TemporaryDirectory() as folder:
        return PACKERS[name].pack(documents_of(lengths), max_length, Path(folder), seed)


def fragments(row: Row) -> list[list[int]]:
    bounds = [*row.starts, len(row.tokens)]
    return [row.tokens[start:stop] for start, stop in itertools.pairwise(bounds)]


def content(tokens: list[int]) -> list[int]:
    return [token for token in tokens if token >= FIRST]


def assert_boundaries(packer: Packer, lengths: list[int], packed: Packed, max_length: int) -> None:
    """Rows are not empty and not too long; a fragment is consecutive tokens of one document."""
    owner = {token: number for number, ids in enumerate(documents_of(lengths)) for token in ids}
    for row in packed.rows:
        assert row.tokens
        is_kept = packer.keeps_overlong and len(row.starts) == 1
        assert len(row.tokens) <= max_length or is_kept
        assert row.starts[0] == 0
        assert row.starts == sorted(set(row.starts))
        assert row.starts[-1] < len(row.tokens)
        for fragment in fragments(row):
            inner = content(fragment)
            assert len({owner[token] for token in inner}) <= 1, "two documents without a start"
            assert inner == list(range(min(inner, default=0), max(inner, default=-1) + 1))
            before, after = fragment.count(BOS), fragment.count(EOS)
            assert before <= 1 and after <= 1
            assert fragment == [BOS] * before + inner + [EOS] * after
            assert inner or packer.cuts_anywhere, "a fragment without content"


def assert_conserved(packer: Packer, lengths: list[int], packed: Packed, max_length: int) -> None:
    """Every token of every document is in one row, or counted as dropped."""
    documents = documents_of(lengths)
    emitted = [token for row in packed.rows for token in content(row.tokens)]
    assert len(emitted) == len(set(emitted)), "a token is in two rows"
    ends = sum(row.tokens.count(EOS) for row in packed.rows)
    given_ends = sum(map(bool, documents)) if packer.adds_specials else 0
    if packed.ledger is None:
        assert sorted(emitted) == [token for ids in documents for token in ids]
        return
    ledger = packed.ledger.check()
    assert ledger.documents.input == len(lengths)
    assert ledger.tokens.input == sum(lengths)
    assert ledger.tokens.emitted == len(emitted)
    assert ledger.tokens.special == ends + sum(row.tokens.count(BOS) for row in packed.rows)
    assert ledger.tokens.pending == ledger.documents.pending == ledger.tokens.overlap == 0
    assert ledger.documents.dropped["empty"] == lengths.count(0)
    size = sum(len(row.tokens) for row in packed.rows)
    padding = len(packed.rows) * max_length - size if packer.pads else 0
    assert ledger.tokens.padding == padding
    if not packer.drops:
        assert sorted(emitted) == [token for ids in documents for token in ids]
        assert ends == given_ends


def assert_whole(packer: Packer, lengths: list[int], packed: Packed, max_length: int) -> None:
    """A document stays whole, or is dropped or truncated."""
    found = {
        inner[0]: inner for row in packed.rows for f in fragments(row) if (inner := content(f))
    }
    for ids in filter(None, documents_of(lengths)):
        inner = found.pop(ids[0], [])
        assert inner == ids[: len(inner)]
        assert len(inner) in (0, len(ids)) or len(ids) + 2 > max_length
    assert not found, "a fragment starts in the middle of a document"


def assert_positions_and_labels(packed: Packed) -> None:
    """Positions restart at every fragment; its first token is no target, every other one is."""
    for row in packed.rows:
        assert row.positions == [n for part in fragments(row) for n in range(len(part))]
        assert row.labels == [token for part in fragments(row) for token in [NO_LABEL, *part[1:]]]


def assert_follows_the_contract(name: str, lengths: list[int], max_length: int, seed: int) -> None:
    packer, packed = PACKERS[name], pack(name, lengths, max_length, seed)
    assert_boundaries(packer, lengths, packed, max_length)
    assert_conserved(packer, lengths, packed, max_length)
    assert_positions_and_labels(packed)
    if not packer.splits:
        assert_whole(packer, lengths, packed, max_length)


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", PACKERS)
def test_every_packer_follows_the_contract(name, corpus):
    assert_follows_the_contract(name, CORPORA[corpus], LENGTH, seed=0)


instances = st.tuples(
    st.lists(st.integers(0, 25), min_size=1, max_size=14), st.integers(4, 16), st.integers(0, 3)
)


@pytest.mark.parametrize(
    "name", [name for name, packer in PACKERS.items() if not packer.uses_files]
)
@settings(max_examples=15, deadline=None)
@given(instance=instances)
def test_packers_in_memory_follow_the_contract_for_any_lengths(name, instance):
    assert_follows_the_contract(name, *instance)


@pytest.mark.parametrize("name", [name for name, packer in PACKERS.items() if packer.uses_files])
@settings(max_examples=5, deadline=None)
@given(instance=instances)
def test_packers_of_files_follow_the_contract_for_any_lengths(name, instance):
    assert_follows_the_contract(name, *instance)


@pytest.mark.parametrize("name", PACKERS)
def test_rows_depend_only_on_documents_options_and_seed(name):
    lengths = CORPORA["a bit of everything"] * 3
    first = pack(name, lengths, seed=3)
    again = pack(name, lengths, seed=3)
    assert first.rows == again.rows
    assert first.ledger == again.ledger
    other = pack(name, lengths, seed=4)
    if not PACKERS[name].drops:
        everything = [sorted(t for row in p.rows for t in row.tokens) for p in (first, other)]
        assert everything[0] == everything[1]


def test_every_strategy_of_the_planner_is_under_contract():
    """A strategy that is added to the planner needs its line in `PACKERS`."""
    with pytest.raises(quire.errors.QuireError) as caught:
        quire.make_plan([1], 8, strategy="?")
    known = str(caught.value).partition("known: ")[2].split(", ")
    assert {f"dataset {name}" for name in known} <= set(PACKERS)
