"""The rules of a plan, checked in the slow and obvious way, without the planner's code."""

from __future__ import annotations

import itertools
from collections import defaultdict

import quire


def round_up(value: int, multiple: int) -> int:
    while value % multiple:
        value += 1
    return value


def expected_span(length: int, longest: int, overlong: str) -> tuple[int, int] | None:
    """Which tokens of a document must be in the plan."""
    if length == 0 or (overlong == "drop" and length > longest):
        return None
    if overlong == "truncate":
        return 0, min(length, longest)
    if overlong == "truncate_left":
        return max(0, length - longest), length
    return 0, length


def assert_follows_the_rules(lengths: list[int], plan: quire.Plan) -> None:
    """For a plan made with ``min_length=1``: every rule of CONTRACTS.md that a plan can break."""
    options = plan.options
    fragments_of = defaultdict(list)
    for row in plan:
        assert row, "an empty row"
        assert len(row) <= (options.max_documents_per_row or len(row))
        places = [round_up(options.prefix + f.stop - f.start, options.align) for f in row]
        assert sum(places) <= options.max_length
        for fragment in row:
            fragments_of[fragment.document].append(fragment)
    longest = options.max_length // options.align * options.align - options.prefix
    overlap_total = 0
    for document, length in enumerate(lengths):
        span = expected_span(length, longest, options.overlong)
        fragments = sorted(fragments_of.pop(document, []), key=lambda f: f.stop)
        if span is None:
            assert not fragments
            continue
        assert fragments[0].start == span[0]
        assert fragments[-1].stop == span[1]
        for before, after in itertools.pairwise(fragments):
            assert after.start == max(span[0], before.stop - options.stride)
            assert after.stop > before.stop, "a continuation carries at least one new token"
            overlap_total += before.stop - after.start
    assert not fragments_of, "an unknown document"
    assert_ledger_matches(lengths, plan, overlap_total)


def assert_ledger_matches(lengths: list[int], plan: quire.Plan, overlap: int) -> None:
    documents, tokens = plan.ledger.documents, plan.ledger.tokens
    content = sum(f.stop - f.start for row in plan for f in row)
    special = plan.options.prefix * sum(len(row) for row in plan)
    assert documents.input == len(lengths)
    assert tokens.input == sum(lengths)
    assert documents.emitted == len({f.document for row in plan for f in row})
    assert documents.dropped["empty"] == lengths.count(0)
    assert tokens.emitted == content - overlap
    assert tokens.overlap == overlap
    assert tokens.special == special
    assert tokens.padding == plan.num_rows * plan.max_length - content - special
    for tally in (documents, tokens):
        assert tally.input == tally.emitted + sum(tally.dropped.values()) + tally.pending
    if plan.num_rows:
        assert plan.utilization == content / (plan.num_rows * plan.max_length)
