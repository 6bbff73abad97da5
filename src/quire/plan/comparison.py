"""Plans for the same lengths side by side, and which one to choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from quire.ledger import Ledger
from quire.plan.fragments import Fragments
from quire.plan.lengths import BoolArray, IntArray
from quire.plan.options import PlanOptions
from quire.plan.padding import PaddingComparison, compare_with_padding
from quire.plan.plan import Plan
from quire.plan.planner import Supervised, plan_documents
from quire.plan.strategies import keeps_order
from quire.printable import counted, share_full

_FEW_CUTS = 0.05
"""The share of broken documents that a recommended length may have."""
_SIMILAR = 0.01
"""Shares that differ by less count as equal."""
_USUAL = ("exact_fit", "best_fit")
"""Strategies that plan a million documents in about a second, the one to prefer first."""
_KEEPING = {"split": 0, "fill": 1, "error": 2}
"""Policies that lose no tokens, the simplest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """The figures of one plan."""

    max_length: int
    strategy: str
    overlong: str
    rows: int
    bound: int
    """No plan for the same fragments has fewer rows."""
    utilization: float
    documents: int
    documents_cut: int
    """Documents in more than one fragment."""
    documents_truncated: int
    """Documents that lost some of their tokens, but not all."""
    documents_dropped: int
    documents_broken: int
    """Documents that were cut, truncated or dropped; each counts once."""
    tokens: int
    """Tokens of all documents, including EOS and lost ones."""
    tokens_lost: int
    """Those that are in no row; unlike the ledger this includes EOS."""
    attention: float
    """How many tokens a token attends to on average, including itself."""
    steps: int
    ledger: Ledger = field(default_factory=Ledger)
    """What the plan packs and drops, by reason."""
    padding: PaddingComparison | None = None
    """What padding would compute for the same documents."""

    @property
    def gap(self) -> float:
        """Rows above the bound, as a share of it."""
        return self.rows / self.bound - 1 if self.bound else 0.0

    @property
    def share_broken(self) -> float:
        """The share of documents that were broken."""
        return self.documents_broken / self.documents if self.documents else 0.0

    def to_dict(self) -> dict[str, object]:
        """The figures as plain values."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        padding = None if self.padding is None else self.padding.to_dict()
        return {**plain, "ledger": self.ledger.to_dict(), "gap": self.gap, "padding": padding}


def candidate_of(
    plan: Plan,
    lengths: IntArray,
    batch_size: int,
    *,
    dropped: Ledger | None = None,
    bound: int | None = None,
) -> Candidate:
    """The figures of a plan for these lengths.

    ``dropped`` counts documents that were dropped before planning because no row holds them;
    ``bound`` is the bound on rows if they are limited in more than tokens.
    """
    before = Ledger() if dropped is None else dropped
    ledger = before + plan.ledger
    cut = np.bincount(plan.documents, minlength=len(lengths)) > 1
    truncated = _truncated(plan, lengths)
    num_dropped = ledger.documents.num_dropped
    in_rows = plan.stops - plan.starts + plan.options.prefix
    total = int(in_rows.sum())
    tokens = int(lengths.sum(dtype=np.int64)) + before.tokens.input
    return Candidate(
        max_length=plan.max_length,
        strategy=plan.options.strategy,
        overlong=plan.options.overlong,
        rows=plan.num_rows,
        bound=plan.lower_bound if bound is None else bound,
        utilization=plan.utilization,
        documents=ledger.documents.input,
        documents_cut=int(cut.sum()),
        documents_truncated=int(truncated.sum()),
        documents_dropped=num_dropped,
        documents_broken=int((cut | truncated).sum()) + num_dropped,
        tokens=tokens,
        tokens_lost=tokens - plan.ledger.tokens.emitted - plan.num_eos,
        attention=float((in_rows * (in_rows + 1.0) / 2).sum() / total) if total else 0.0,
        steps=-(-plan.num_rows // batch_size),
        ledger=ledger,
        padding=compare_with_padding(plan, batch_size),
    )


def _truncated(plan: Plan, lengths: IntArray) -> BoolArray:
    """Which documents are in rows with only some of their tokens."""
    fragments = Fragments(documents=plan.documents, starts=plan.starts, stops=plan.stops)
    new_tokens = fragments.lengths - fragments.overlaps(plan.options.stride)
    in_rows = np.bincount(plan.documents, new_tokens, minlength=len(lengths))
    return (in_rows > 0) & (in_rows < lengths)


def compare(
    lengths: IntArray,
    options: Sequence[PlanOptions],
    *,
    batch_size: int = 1,
    supervised: Supervised | None = None,
    on_plan: Callable[[Candidate], None] = lambda candidate: None,
) -> list[Candidate]:
    """One candidate for each of the options; ``supervised`` as in `plan_documents`.

    >>> options = [PlanOptions(max_length=4, strategy=name) for name in ("best_fit", "greedy")]
    >>> [candidate.rows for candidate in compare(np.array([3, 2, 1, 2]), options)]
    [2, 3]
    """
    found = []
    for one in options:
        plan = plan_documents(lengths, one, supervised)
        found.append(candidate_of(plan, lengths, batch_size))
        on_plan(found[-1])
    return found


def recommend(candidates: Sequence[Candidate]) -> tuple[Candidate, list[str]]:
    """The candidate to choose, and the reasons as sentences.

    First the length: the shortest that breaks few documents. Then the strategy: one that keeps the
    order if it fills rows as well, because an order by length biases training; otherwise the one
    with the fullest rows among those that break the fewest documents.
    """
    length, reasons = _recommended_length(candidates)
    here = [one for one in candidates if one.max_length == length]
    fewest_lost = min(one.tokens_lost for one in here)
    here = [one for one in here if one.tokens_lost == fewest_lost]
    # If policies give the same rows, prefer one that would not drop later documents.
    here.sort(key=lambda one: _KEEPING.get(one.overlong, len(_KEEPING)))
    whole = min(one.share_broken for one in here)
    careful = [one for one in here if one.share_broken <= whole + _SIMILAR]
    best = min(careful, key=lambda one: (one.rows, _rank(one.strategy)))
    cheap = [one for one in careful if one.rows <= best.rows * (1 + _SIMILAR)]
    ordered = [one for one in cheap if keeps_order(one.strategy)]
    plain = [one for one in cheap if one.strategy in _USUAL and one.rows <= best.rows * 1.002]
    plain.sort(key=lambda one: _rank(one.strategy))
    chosen = (ordered or plain or [best])[0]
    reasons.append(_why(chosen, best, bool(ordered)))
    reasons += _alternative(chosen, here)
    return chosen, reasons


def _rank(strategy: str) -> int:
    return _USUAL.index(strategy) if strategy in _USUAL else len(_USUAL)


def offer_tight(candidates: Sequence[Candidate], chosen: Candidate) -> list[str]:
    """What `tight` could save at most, if it was not tried and the bound leaves room.

    The bound is for the fragments of a usual strategy, which are those that `tight` would place.
    """
    alike = (
        one
        for one in candidates
        if (one.max_length, one.overlong) == (chosen.max_length, chosen.overlong)
    )
    found = {one.strategy: one for one in alike}
    usual = next((found[name] for name in _USUAL if name in found), None)
    if "tight" in found or usual is None:
        return []
    saved = chosen.rows - usual.bound
    if saved <= 0:
        return []
    return [
        f"tight could save at most {counted(saved, 'row')} "
        f"({saved / chosen.rows:.2%}): --strategy tight"
    ]


def _recommended_length(candidates: Sequence[Candidate]) -> tuple[int, list[str]]:
    broken: dict[int, float] = {}
    for one in candidates:
        share = one.share_broken
        broken[one.max_length] = min(broken.get(one.max_length, share), share)
    few = [length for length in sorted(broken) if broken[length] <= _FEW_CUTS]
    length = few[0] if few else max(broken)
    others = ", ".join(
        f"{share:.1%} at {n:,}" for n, share in sorted(broken.items()) if n != length
    )
    beside = f" ({others})" if others else ""
    if few:
        reason = f"{length:,} is the shortest length that breaks at most {_FEW_CUTS:.0%} of the "
        return length, [f"{reason}documents: {broken[length]:.1%}{beside}."]
    return length, [
        f"every length breaks more than {_FEW_CUTS:.0%} of the documents; {length:,} breaks the "
        f"fewest: {broken[length]:.1%}{beside}."
    ]


def _why(chosen: Candidate, best: Candidate, in_order: bool) -> str:
    full = f"{chosen.strategy} fills rows to {share_full(chosen.utilization)}"
    if in_order:
        return f"{full}, within {_SIMILAR:.0%} of the best, and keeps the order of the documents."
    over = f"{counted(chosen.rows - chosen.bound, 'row')} over the proven bound"
    if chosen is best:
        return f"{full}, {over}; rows are shuffled, so they are not sorted by length."
    return f"{full}, {over}; {best.strategy} would save {chosen.rows - best.rows:,}."


def _alternative(chosen: Candidate, others: Sequence[Candidate]) -> list[str]:
    fuller = min(others, key=lambda one: one.rows)
    if fuller.rows >= chosen.rows or fuller.documents_cut <= chosen.documents_cut:
        return []
    return [
        f"{fuller.strategy} ({fuller.overlong}) would save "
        f"{counted(chosen.rows - fuller.rows, 'row')}, and cut "
        f"{counted(fuller.documents_cut - chosen.documents_cut, 'more document')}."
    ]
