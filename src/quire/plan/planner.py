"""`make_plan`: lengths in, the plan out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from quire.options import PackOptions, group_values
from quire.plan import chunks
from quire.plan.build import build_plan
from quire.plan.fill import close_gaps, wrap
from quire.plan.fragments import Fragments, Rows, apply_overlong, whole_documents
from quire.plan.lengths import BoolArray, IntArray, Lengths, as_lengths
from quire.plan.options import Overlong, PlanOptions, require_room, row_space
from quire.plan.plan import Plan
from quire.plan.strategies import Strategy, find_strategy

Supervised: TypeAlias = Callable[[Fragments], BoolArray]
"""Tells for each fragment whether any of its labels is trained on."""


def make_plan(
    lengths: Lengths,
    max_length: int,
    strategy: str = "exact_fit",
    *,
    overlong: Overlong = "split",
    stride: int = 0,
    prefix: int = 0,
    min_length: int = 1,
    min_fragment: int = 1,
    max_documents_per_row: int | None = None,
    align: int = 1,
    shuffle: bool = False,
    seed: int | None = 0,
) -> Plan:
    """The plan that packs documents of these lengths into rows of this max_length.

    Options are explained at `PlanOptions`. Empty documents are in no row; the ledger counts them.

    >>> plan = make_plan([6, 3, 5, 0], max_length=8)
    >>> [[fragment.document for fragment in row] for row in plan]
    [[0], [2, 1]]
    >>> plan.utilization, plan.ledger.documents.dropped["empty"]
    (0.875, 1)
    """
    options = PlanOptions(
        max_length=max_length,
        strategy=strategy,
        overlong=overlong,
        stride=stride,
        prefix=prefix,
        min_length=min_length,
        min_fragment=min_fragment,
        max_documents_per_row=max_documents_per_row,
        align=align,
        shuffle=shuffle,
        seed=seed,
    )
    return plan_documents(lengths, options)


def require_plannable(options: PackOptions) -> None:
    """Raise if no documents can be planned with these options."""
    find_strategy(options.strategy)
    require_room(options)


def plan_options(
    options: PackOptions, prefix: int = 0, ends_with_eos: bool = False, **changes: object
) -> PlanOptions:
    """The planner's form of the options of a path that packs documents with special tokens.

    Rows are shuffled unless the options or the strategy say otherwise. EOS is kept with a token of
    content, unless the overlap has one and there is no room.
    """
    strategy = find_strategy(options.strategy)
    cuts = strategy.wraps or options.overlong in ("split", "fill", "truncate_left")
    room = row_space(options) - prefix - options.stride
    eos_needs_content = ends_with_eos and cuts and (room > 1 or not options.stride)
    values: dict[str, Any] = {
        **group_values(options, PackOptions),
        "shuffle": not strategy.keeps_order if options.shuffle is None else options.shuffle,
        "prefix": prefix,
        "ends_with_eos": ends_with_eos,
        "min_tail": 1 + eos_needs_content,
        **changes,
    }
    return PlanOptions(**values)


def plan_documents(
    lengths: Lengths, options: PlanOptions, supervised: Supervised | None = None
) -> Plan:
    """`make_plan`, with the options as one object.

    ``supervised`` tells which fragments the model learns something from; the others are left out
    of the rows and counted.
    """
    strategy = find_strategy(options.strategy)
    lengths = as_lengths(lengths)
    if supervised is None and (in_chunks := _place_chunks(lengths, strategy, options)):
        return build_plan(lengths, *in_chunks, options)
    in_rows, offsets, unsupervised = _place(lengths, strategy, options, supervised)
    return build_plan(lengths, in_rows, offsets, options, (unsupervised, "unsupervised"))


def _place_chunks(
    lengths: IntArray, strategy: Strategy, options: PlanOptions
) -> chunks.Placed | None:
    """The rows of very many documents, if the strategy supports chunks."""
    if strategy.runs is None or options.overlong == "fill" or len(lengths) <= chunks.MANY:
        return None

    def place(part: IntArray) -> chunks.Placed:
        return _place(part, strategy, options, None)[:2]

    return chunks.place_chunks(lengths, options, place, strategy.place, strategy.runs)


def _place(
    lengths: IntArray, strategy: Strategy, options: PlanOptions, supervised: Supervised | None
) -> tuple[Fragments, IntArray, Fragments]:
    """Fragments in row order, the row offsets, and the fragments that were left out."""
    fragments = whole_documents(lengths, options)
    fill = options.overlong == "fill"
    wraps = strategy.wraps or (strategy.keeps_order and fill)
    if not (wraps and options.overlong in ("split", "fill")):  # else `wrap` makes the cuts
        fragments = apply_overlong(fragments, options)
    if strategy.needs_order:
        fragments = fragments.in_document_order()
    fragments, left_out = _split_off(fragments, supervised)
    if not len(fragments):
        return fragments, np.zeros(1, dtype=np.int64), left_out
    if wraps:
        in_rows, offsets = wrap(fragments, options)
    else:
        rows = strategy.place(options.spaces(fragments.lengths), options.row_space, options)
        if not fill:
            return fragments.take(rows.fragments), rows.offsets, left_out
        in_rows, offsets = close_gaps(fragments, rows, options)
    return _drop_unsupervised_pieces(in_rows, offsets, left_out, supervised)


def _split_off(fragments: Fragments, supervised: Supervised | None) -> tuple[Fragments, Fragments]:
    """The fragments to train on, and the others."""
    if supervised is None or not len(fragments) or (wanted := supervised(fragments)).all():
        return fragments, fragments.take(np.zeros(0, dtype=np.int64))
    return fragments.take(np.flatnonzero(wanted)), fragments.take(np.flatnonzero(~wanted))


def _drop_unsupervised_pieces(
    in_rows: Fragments, offsets: IntArray, left_out: Fragments, supervised: Supervised | None
) -> tuple[Fragments, IntArray, Fragments]:
    """The rows without pieces that teach nothing, which cuts that close gaps can leave."""
    if supervised is None or (wanted := supervised(in_rows)).all():
        return in_rows, offsets, left_out
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[wanted]
    left_out = left_out.joined(in_rows.take(np.flatnonzero(~wanted)))
    return in_rows.take(np.flatnonzero(wanted)), Rows.of_row_numbers(row).offsets, left_out
