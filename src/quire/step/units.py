"""From sequences to units: what is placed as a whole.

A unit is a sequence, a piece of one that was split, or a group that shares a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np

from quire.errors import InvalidLengths, InvalidOption, OversizedDocument
from quire.options import require_integer
from quire.plan.build import spans
from quire.plan.fragments import Fragments, numbered_by_first
from quire.plan.lengths import BoolArray, FloatArray, IntArray, Lengths, as_lengths
from quire.step.costs import sequence_costs, sums
from quire.step.options import StepOptions
from quire.step.rows import fit_into, largest_first

MOST_TOKENS = 2**52
"""More would not be exact in the sums of doubles."""
_MOST_PIECES = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Units:
    """The pieces of all sequences that are kept, and the units that they make up."""

    pieces: Fragments
    unit: IntArray
    """The unit of every piece."""
    sizes: IntArray
    """Of every unit, [units, budgets]: places in a row, then the further budgets."""
    limits: IntArray
    """What a row holds of each budget."""
    costs: FloatArray
    kinds: IntArray
    """The kind of every unit, numbered by first appearance."""
    groups: IntArray
    """The group of every unit; a unit that is free is a group of its own."""
    dropped: dict[str, IntArray]
    """Sequences that are in no row, by reason."""


def make_units(lengths: IntArray, options: StepOptions) -> Units:
    """The units of sequences of these lengths, every one of which fits into a row."""
    demands, limits = _budgets(len(lengths), options)
    kinds = _labels("kinds", options.kinds, len(lengths))
    groups = _labels("groups", options.groups, len(lengths))
    _require_one_kind(groups, kinds, options)
    overlong = _overlong(lengths, demands, limits, options)
    pieces = _pieces(lengths, (lengths > 0) & ~overlong, options)
    # Only tokens can be split: the first piece of a sequence has all of the other budgets.
    others = np.where((pieces.starts == 0)[:, None], demands[pieces.documents], 0)
    sizes = np.column_stack([options.spaces(pieces.lengths), others])
    _require_exact(sizes[:, 0], options)
    group = _groups_of_pieces(groups[pieces.documents])
    large = _in_large_groups(pieces.documents, group, sizes, limits, options)
    dropped = {
        "empty": np.flatnonzero(lengths == 0),
        "too_long": np.flatnonzero(overlong),
        "group_too_long": np.unique(pieces.documents[large]),
    }
    pieces, sizes, group = pieces.take(np.flatnonzero(~large)), sizes[~large], group[~large]
    unit: IntArray = np.arange(len(pieces))
    if options.groups is not None and options.groups_share == "row":
        unit = numbered_by_first(group)
    first, of_unit = _united(unit, sizes)
    return Units(
        pieces=pieces,
        unit=unit,
        sizes=of_unit,
        limits=limits,
        costs=sums(unit, sequence_costs(pieces.lengths, options.cost), len(first)),
        kinds=numbered_by_first(kinds[pieces.documents[first]]),
        groups=numbered_by_first(group[first]),
        dropped=dropped,
    )


def _united(unit: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """The first piece of every unit, and the sizes of its pieces together."""
    number = int(unit.max(initial=-1)) + 1
    first = np.full(number, len(unit))
    np.minimum.at(first, unit, np.arange(len(unit)))
    together = np.zeros((number, sizes.shape[1]), dtype=np.int64)
    np.add.at(together, unit, sizes)
    return first, together


def read_lengths(lengths: Lengths) -> IntArray:
    """The lengths as 64-bit integers."""
    array = as_lengths(lengths).astype(np.int64)
    if (total := float(array.sum(dtype=np.float64))) > MOST_TOKENS:
        raise InvalidLengths(
            f"the lengths sum to {total:.3g} tokens but a step holds at most {MOST_TOKENS:.3g}; "
            "check how the lengths were computed"
        )
    return array


def _budgets(number: int, options: StepOptions) -> tuple[IntArray, IntArray]:
    """What every sequence takes of each further budget; what a row holds of all of them."""
    columns, limits = [], [min(options.row_space, MOST_TOKENS)]
    if not isinstance(options.budgets, Mapping | None):
        raise InvalidOption(
            f"budgets is {options.budgets!r} but must be a mapping of names to (numbers, limit)"
        )
    for name, budget in (options.budgets or {}).items():
        if not isinstance(budget, tuple | list) or len(budget) != 2:
            raise InvalidOption(
                f"budgets[{name!r}] is {budget!r} but must be (numbers, limit): a number for each "
                "sequence, and the most in a row"
            )
        counts, limit = budget
        try:
            column = read_lengths(counts)
        except InvalidLengths as error:
            raise InvalidLengths(f"budgets[{name!r}]: {error}") from error
        if len(column) != number:
            raise InvalidOption(
                f"budgets[{name!r}] has {len(column)} numbers for {number} sequences"
            )
        columns.append(column)
        limits.append(require_integer(f"the limit of budgets[{name!r}]", limit, 1, MOST_TOKENS))
    demands = np.stack(columns, axis=1) if columns else np.zeros((number, 0), dtype=np.int64)
    return demands, np.array(limits, dtype=np.int64)


def _labels(name: str, labels: object, number: int) -> IntArray:
    """A number for each label. For kinds, None is a kind; for groups, it is no group, -1."""
    if labels is None:
        return np.full(number, -1 if name == "groups" else 0, dtype=np.int64)
    listed = labels.tolist() if hasattr(labels, "tolist") else labels
    unordered = isinstance(listed, str | bytes | Mapping | Set)
    if unordered or not isinstance(listed, Iterable):
        raise InvalidOption(
            f"{name} is {labels!r} but must have a label for each sequence, in their order"
        )
    listed = list(listed)
    if len(listed) != number:
        raise InvalidOption(f"{name} has {len(listed)} labels for {number} sequences")
    known: dict[object, int] = {None: -1} if name == "groups" else {}
    found = np.empty(number, dtype=np.int64)
    try:
        for index, label in enumerate(listed):
            value = label.item() if hasattr(label, "item") else label  # tensors are never equal
            if isinstance(value, float) and np.isnan(value):
                raise InvalidOption(
                    f"{name} has the label {value!r} for sequence {index}; use None for no label"
                )
            found[index] = known.setdefault(value, len(known))
    except InvalidOption:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidOption(f"{name} has a label that cannot be compared: {error}") from error
    return found


def _require_one_kind(groups: IntArray, kinds: IntArray, options: StepOptions) -> None:
    """Raise if sequences that share a micro-step are of different kinds."""
    members = np.flatnonzero(groups >= 0)
    if options.groups_share == "rank" or not len(members):
        return
    first = np.full(int(groups.max()) + 1, len(groups))
    np.minimum.at(first, groups[members], members)
    wrong = members[kinds[members] != kinds[first[groups[members]]]]
    if len(wrong):
        other = int(wrong[0])
        raise InvalidOption(
            f"sequences {first[groups[other]]} and {other} are of one group, which shares a "
            f"{options.groups_share.replace('_', '-')}, but of different kinds; give them one "
            "kind, or groups_share='rank'"
        )


def _overlong(
    lengths: IntArray, demands: IntArray, limits: IntArray, options: StepOptions
) -> BoolArray:
    """Sequences to drop because they do not fit into a row; an error unless they may be."""
    beyond = demands > limits[1:]
    if options.overlong != "drop":
        for column, name in enumerate(options.budgets or {}):
            if beyond[:, column].any():
                worst = int(np.argmax(beyond[:, column]))
                raise OversizedDocument(
                    f"sequence {worst} has {demands[worst, column]} {name} but a row holds "
                    f"{limits[1 + column]}; drop it (overlong='drop') or raise the limit"
                )
    longer = lengths > limits[0]
    if options.overlong == "error" and longer.any():
        worst = int(np.argmax(longer))
        raise OversizedDocument(
            f"sequence {worst} has {lengths[worst]} tokens but a row holds {limits[0]}; "
            "split it (overlong='split'), drop it (overlong='drop') or raise "
            f"{'the largest of shapes' if isinstance(options.shapes, tuple) else 'max_length'}"
        )
    too_long: BoolArray = beyond.any(axis=1) & (lengths > 0)
    return too_long | longer if options.overlong == "drop" else too_long


def _pieces(lengths: IntArray, kept: BoolArray, options: StepOptions) -> Fragments:
    """The pieces of the sequences that are kept: whole ones, or pieces of at most a row."""
    documents = np.flatnonzero(kept)
    counts = -(-lengths[documents] // options.row_space)
    if (number := int(counts.sum())) > _MOST_PIECES:
        raise InvalidLengths(
            f"{len(lengths)} sequences make {number} pieces of {options.row_space} tokens but a "
            f"step holds at most {_MOST_PIECES}; raise max_length or use overlong='drop'"
        )
    pieces = np.repeat(documents, counts)
    starts = spans(np.zeros_like(counts), counts) * options.row_space
    stops = np.minimum(starts + options.row_space, lengths[pieces])
    return Fragments(documents=pieces, starts=starts, stops=stops)


def _require_exact(spaces: IntArray, options: StepOptions) -> None:
    """Raise if the places that sequences take cannot be added up exactly."""
    if (total := float(spaces.sum(dtype=np.float64))) > MOST_TOKENS:
        raise InvalidOption(
            f"sequences padded with align={options.align} take {total:.3g} places but a step has "
            f"at most {MOST_TOKENS:.3g}; lower align"
        )


def _groups_of_pieces(groups: IntArray) -> IntArray:
    """The group of every piece; one of no group is a group of its own."""
    free = np.flatnonzero(groups < 0)
    group = groups.copy()
    group[free] = int(groups.max(initial=-1)) + 1 + np.arange(len(free))
    return group


def _in_large_groups(
    documents: IntArray, group: IntArray, sizes: IntArray, limits: IntArray, options: StepOptions
) -> BoolArray:
    """Pieces whose group does not fit where it must be; an error unless it may be dropped."""
    large = np.zeros(len(documents), dtype=bool)
    if options.groups is None or options.groups_share == "rank" or not len(documents):
        return large
    order = np.argsort(group, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        large[members] = _is_large(sizes[members], limits, options)
        if large[members[0]] and options.overlong != "drop":
            raise OversizedDocument(
                f"the group of sequence {documents[members[0]]} takes {sizes[members, 0].sum()} "
                f"tokens and does not fit into a {options.groups_share.replace('_', '-')} of "
                f"{_room(limits, options)}; drop such groups (overlong='drop'), make them smaller "
                "or raise max_length"
            )
    return large


def _is_large(sizes: IntArray, limits: IntArray, options: StepOptions) -> bool:
    if options.groups_share == "row":
        return bool((sizes.sum(axis=0) > limits).any())
    if len(sizes) <= options.num_ranks:
        return False
    rows = np.tile(limits, (options.num_ranks, 1))
    return fit_into(rows, sizes[largest_first(sizes)]) is None


def _room(limits: IntArray, options: StepOptions) -> str:
    rows = "" if options.groups_share == "row" else f"{options.num_ranks} rows of "
    return rows + ", ".join(
        f"{limit} {name}"
        for limit, name in zip(limits, ["tokens", *(options.budgets or {})], strict=True)
    )
