"""Plans of samples with images: within all budgets, and never cut; for `pack` and for `plan`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from quire.corpus.options import CorpusOptions
from quire.documents import Documents, Media
from quire.errors import OversizedDocument
from quire.ledger import Ledger, Tally, TokenTally
from quire.options.names import option, setting
from quire.plan import Plan, PlanOptions, plan_documents
from quire.plan.bounds import bound_of_sizes
from quire.plan.budgets import plan_within_budgets
from quire.plan.fragments import Fragments
from quire.plan.lengths import BoolArray, IntArray
from quire.plan.planner import Supervised


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """What a row holds of one measure."""

    unit: str
    option: str
    most: int
    values: IntArray
    """How much each sample has."""
    reason: str
    """What the ledger calls a sample that has more."""

    @property
    def over(self) -> BoolArray:
        """Which samples fit into no row."""
        return self.values > self.most


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSizes:
    """What rows are limited in, for every sample."""

    lengths: IntArray
    images: IntArray
    patches: IntArray

    @classmethod
    def of(cls, documents: Documents) -> SampleSizes:
        """The sizes of these documents, which have images."""
        media, numbers = media_of(documents), documents.numbers
        return cls(
            lengths=documents.lengths.astype(np.int64),
            images=media.counts_of(numbers).astype(np.int64),
            patches=media.patches_of(numbers).astype(np.int64),
        )

    @classmethod
    def joined(cls, parts: list[SampleSizes]) -> SampleSizes:
        """The sizes of samples that follow each other."""
        nothing = np.zeros(0, dtype=np.int64)
        return cls(
            lengths=np.concatenate([nothing, *(part.lengths for part in parts)]),
            images=np.concatenate([nothing, *(part.images for part in parts)]),
            patches=np.concatenate([nothing, *(part.patches for part in parts)]),
        )

    def take(self, which: IntArray) -> SampleSizes:
        """Those of some of the samples."""
        return SampleSizes(
            lengths=self.lengths[which], images=self.images[which], patches=self.patches[which]
        )

    def budgets(self, corpus: CorpusOptions) -> Iterator[Limit]:
        """The limits besides that of tokens, as far as there are any."""
        for unit, most, values in (
            ("images", corpus.max_images, self.images),
            ("patches", corpus.max_patches, self.patches),
        ):
            if most is not None:
                yield Limit(
                    unit=unit,
                    option=f"max_{unit}",
                    most=most,
                    values=values,
                    reason="skipped_oversized",
                )

    def limits(self, options: PlanOptions, corpus: CorpusOptions) -> list[Limit]:
        """All limits, that of tokens first: it is why a sample is dropped that exceeds several."""
        tokens = Limit(
            unit="tokens",
            option="max_length",
            most=options.row_space,
            values=self.lengths,
            reason="too_long",
        )
        return [tokens, *self.budgets(corpus)]


def media_of(documents: Documents) -> Media:
    """The images of documents that have some."""
    if documents.media is None:
        raise TypeError("these documents have no images")
    return documents.media


def plan_samples(
    sizes: SampleSizes, options: PlanOptions, corpus: CorpusOptions, supervised: Supervised | None
) -> Plan:
    """The plan of samples that all fit into a row.

    Budgets often bind in no row. A plan by tokens alone is then within them, too, and is taken if
    it needs fewer rows.
    """
    budgets, whole = list(sizes.budgets(corpus)), replace(options, overlong="error")
    if not budgets:
        return plan_documents(sizes.lengths, whole, supervised)
    measures = np.column_stack([budget.values for budget in budgets])
    most = [budget.most for budget in budgets]
    within = plan_within_budgets(sizes.lengths, measures, most, whole, supervised)
    # The usual strategy tells cheaply whether the slow one is worth trying.
    for strategy in dict.fromkeys(("exact_fit", options.strategy)):
        if within.num_rows <= rows_needed(within, sizes, corpus):
            break
        plain = plan_documents(sizes.lengths, replace(whole, strategy=strategy), supervised)
        if not all(_holds(plain, budget) for budget in budgets):
            break
        if plain.num_rows < within.num_rows and plain.content >= within.content:
            within = plain
    return within


def _holds(plan: Plan, budget: Limit) -> bool:
    """Whether every row is within a budget that the plan may not have known."""
    values = budget.values[plan.documents]
    return not plan.num_rows or bool(
        (np.add.reduceat(values, plan.row_offsets[:-1]) <= budget.most).all()
    )


def dropped_for(limits: list[Limit]) -> list[tuple[str, BoolArray]]:
    """Which samples are dropped for which reason; each for the first limit that it exceeds."""
    found: dict[str, BoolArray] = {}
    before = np.zeros(len(limits[0].values), dtype=bool)
    for limit in limits:
        which = limit.over & ~before
        found[limit.reason] = found[limit.reason] | which if limit.reason in found else which
        before |= which
    return list(found.items())


def require_droppable(
    limits: list[Limit], corpus: CorpusOptions, name: Callable[[int], str]
) -> None:
    """Raise for a sample that fits into no row, unless such samples are to be dropped."""
    for limit in limits:
        if corpus.overlong != "drop" and limit.over.any():
            first = int(np.argmax(limit.over))
            raise OversizedDocument(
                f"{name(first)} has {limit.values[first]} {limit.unit} but a row holds "
                f"{limit.most}, and a sample with images is never cut; drop such samples "
                f"({setting('overlong', 'drop')}) or raise {option(limit.option)}"
            )


def plan_with_drops(
    sizes: SampleSizes, options: PlanOptions, corpus: CorpusOptions, supervised: Supervised | None
) -> tuple[Plan, IntArray, Ledger]:
    """The plan of the samples that fit into a row, which those are, and a ledger of the others."""
    limits = sizes.limits(options, corpus)
    require_droppable(limits, corpus, lambda sample: f"sample {sample}")
    kept, ledger = np.ones(len(sizes.lengths), dtype=bool), Ledger()
    for reason, which in dropped_for(limits):
        if count := int(which.sum()):
            tokens = int(sizes.lengths[which].sum())
            ledger += Ledger(
                documents=Tally(input=count, dropped={reason: count}),
                tokens=TokenTally(input=tokens, dropped={reason: tokens}),
            )
        kept &= ~which
    places: IntArray = np.flatnonzero(kept)

    def judge(fragments: Fragments) -> BoolArray:
        if supervised is None:
            raise TypeError("these samples have no labels")
        given = replace(fragments, documents=places[fragments.documents], num_openings=0)
        return supervised(given)

    judged = None if supervised is None else judge
    return plan_samples(sizes.take(places), options, corpus, judged), places, ledger


def rows_needed(plan: Plan, sizes: SampleSizes, corpus: CorpusOptions) -> int:
    """A number of rows that no plan of these samples within all budgets can go below."""
    bounds = [plan.lower_bound]
    for budget in sizes.budgets(corpus):
        values = budget.values[plan.documents]
        bounds.append(bound_of_sizes(values[values > 0], PlanOptions(max_length=budget.most)))
    return max(bounds)
