"""Every token is in the rows once, or the ledger says why not: over all options."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.literal_packing import pack
from tests.text.literal_tokenizer import LiteralTokenizer, text_of
from tests.text.row_rules import Marks, assert_overlaps, document_ids, read_rows


@pytest.fixture(autouse=True)
def _warned_already(monkeypatch):
    monkeypatch.setattr("quire.blocks._warn_of_drops", lambda *_: None)


SPECIALS = [(None, None), (1, None), (None, 2), (1, 2), (1, 1)]


@st.composite
def calls(draw):
    """(lengths of documents, bos and eos, options)."""
    max_length = draw(st.integers(2, 12))
    return (
        draw(st.lists(st.integers(0, 30), max_size=8)),
        draw(st.sampled_from(SPECIALS)),
        {
            "max_length": max_length,
            "overflow": draw(st.booleans()),
            "packed": draw(st.booleans()),
            "packing_strategy": draw(
                st.sampled_from(["greedy", "best_fit", "first_fit", "wrapped"])
            ),
            "shuffle_output": draw(st.booleans()),
            "seed": draw(st.integers(0, 3)),
            "stride": draw(st.sampled_from([0, 0, 1, 2, 5])),
            "min_len": draw(st.sampled_from([1, 1, max_length // 2 + 1])),
            "max_len": draw(st.sampled_from([None, None, 20])),
            "add_bos": draw(st.booleans()),
            "add_eos": draw(st.booleans()),
        },
    )


def cuts(options) -> bool:
    return options["overflow"] or (options["packed"] and options["packing_strategy"] == "wrapped")


def has_room(marks: Marks, options) -> bool:
    room = options["max_length"] - (marks.bos is not None) - options["stride"]
    alone = marks.eos is not None and cuts(options) and not options["stride"]
    return room >= 1 + alone


@settings(max_examples=500, deadline=None)
@given(calls())
def test_every_token_is_there_once_or_the_ledger_says_why_not(call):
    lengths, (bos, eos), options = call
    tokenizer = LiteralTokenizer(bos_token_id=bos, eos_token_id=eos)
    texts = [text_of(ids) for ids in document_ids(lengths)]
    marks = Marks(bos if options["add_bos"] else None, eos if options["add_eos"] else None)
    if not has_room(marks, options):
        with pytest.raises(ValueError, match="no room"):
            pack(texts, tokenizer, **options)
        return
    rows = pack(texts, tokenizer, **options)
    in_rows = read_rows(rows, lengths, marks)
    assert all(options["min_len"] <= len(row) <= options["max_length"] for row in rows.input_ids)
    assert options["packed"] or all(len(row) == 1 for row in in_rows)
    assert_ledger(rows, in_rows, lengths, marks, options)
    if not options["shuffle_output"]:
        assert_order(rows, in_rows, marks, options)


def assert_ledger(rows, in_rows, lengths, marks, options):
    """Tokens missing from the rows are those that the ledger counts, reason by reason."""
    ledger = rows.ledger
    pieces = [piece for row in in_rows for piece in row]
    prefix, suffix = int(marks.bos is not None), int(marks.eos is not None)
    limit = options["max_len"] or 10**9
    full = {d: n + suffix for d, n in enumerate(lengths) if 0 < n <= limit - prefix}
    too_long = [n for n in lengths if n > limit - prefix]
    longest = options["max_length"] - prefix
    kept = {d: n if options["overflow"] else min(n, longest) for d, n in full.items()}
    emitted = {(p.document, place) for p in pieces for place in range(p.start, p.stop)}
    wanted = {(d, place) for d, n in kept.items() for place in range(n)}
    assert emitted <= wanted
    missing = wanted - emitted
    assert options["min_len"] > 1 or not missing
    content = {(d, place) for d in full for place in range(lengths[d])}
    expected = {
        "too_long": sum(too_long),
        "truncated": len(content - wanted),
        "row_too_short": len(content & missing),
    }
    assert dict(ledger.tokens.dropped) == {reason: n for reason, n in expected.items() if n}
    lost = {d for d, _ in missing} - {d for d, _ in emitted}
    expected = {
        "empty": lengths.count(0),
        "too_long": len(too_long),
        "row_too_short": len(lost),
    }
    assert dict(ledger.documents.dropped) == {reason: n for reason, n in expected.items() if n}
    assert ledger.documents.input == len(lengths)
    assert ledger.tokens.input == len(content) + sum(too_long)
    assert ledger.tokens.emitted == len(emitted & content)
    assert ledger.tokens.special == prefix * len(pieces) + len(emitted - content)
    if not missing:
        assert assert_overlaps(pieces, options["stride"]) == ledger.tokens.overlap
    num_tokens = sum(len(row) for row in rows.input_ids)
    assert ledger.tokens.padding == len(rows.input_ids) * options["max_length"] - num_tokens


def assert_order(rows, in_rows, marks, options):
    """Greedy keeps the order of documents; with overflow only the last row has room left."""
    if options["packed"] and options["packing_strategy"] in ("best_fit", "first_fit"):
        return
    pieces = [(piece.document, piece.stop) for row in in_rows for piece in row]
    assert pieces == sorted(pieces)
    if not options["packed"] or options["min_len"] > 1:
        return
    prefix = int(marks.bos is not None)
    for row, following in zip(rows.input_ids, in_rows[1:], strict=False):
        free = options["max_length"] - len(row)
        first = following[0]
        if cuts(options):
            assert free <= prefix + options["stride"] + 1
        else:
            assert free < prefix + first.stop - first.start


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 12))
def test_without_specials_greedy_rows_are_the_stream_cut_at_every_max_length(lengths, max_length):
    documents = document_ids(lengths)
    stream = [token for ids in documents for token in ids]
    rows = pack([text_of(ids) for ids in documents], packed=True, max_length=max_length)
    expected = [stream[at : at + max_length] for at in range(0, len(stream), max_length)]
    assert rows.input_ids == expected
    firsts = {ids[0] for ids in documents if ids}
    for row, starts in zip(rows.input_ids, rows.document_starts, strict=True):
        assert starts == [at for at, token in enumerate(row) if at == 0 or token in firsts]
