"""The fewest micro-steps of a small step, by trying every way to fill its rows."""

from __future__ import annotations

from tests.step.checker import row_space

MOST_PIECES = 7
_MOST_TRIES = 2_000


def fewest_micro_steps(lengths, plan, **options):
    """The optimum for the sequences that a plan holds; None if there are too many ways to try."""
    items = _items([int(length) for length in lengths], plan, options)
    if len(items) > MOST_PIECES:
        return None
    steps, multiple = options.get("min_micro_steps", 1), options.get("micro_steps_multiple_of", 1)
    steps = -(-steps // multiple) * multiple
    tries = [0]
    while not _fits(items, {}, {}, {}, options.get("num_ranks", 1), steps, tries):
        if tries[0] > _MOST_TRIES:
            return None
        steps += multiple
    return steps


def _items(lengths, plan, options):
    """Size (tokens and further budgets over their limits), group and kind of every piece."""
    space, align = row_space(options), options.get("align", 1)
    budgets = list((options.get("budgets") or {}).values())
    groups, kinds = (options.get(name) for name in ("groups", "kinds"))
    share = options.get("groups_share", "row")
    items = []
    for n in sorted({int(n) for n in plan.documents}):
        group = None if groups is None or groups[n] is None else (share, groups[n])
        kind = 0 if kinds is None else kinds[n]
        rest = [int(sizes[n]) / limit for sizes, limit in budgets]
        for start in range(0, lengths[n], space):
            tokens = -(-min(space, lengths[n] - start) // align) * align
            items.append(((tokens / space, *rest), group, kind))
            rest = [0.0] * len(rest)
    return sorted(items, key=lambda item: (-item[0][0], str(item)))


def _fits(items, loads, kind_of, place_of, ranks, steps, tries):
    """Whether the items fit beside those in rows already: loads by (rank, step)."""
    if not items:
        return True
    tries[0] += 1
    if tries[0] > _MOST_TRIES:
        return False
    (size, group, kind), rest = items[0], items[1:]
    # Empty ranks are alike, and so are empty steps: the first of them is enough.
    some_ranks = range(min(ranks, max((rank for rank, _ in loads), default=-1) + 2))
    some_steps = range(min(steps, max((step for _, step in loads), default=-1) + 2))
    for rank in some_ranks:
        for step in some_steps:
            where = {"row": (rank, step), "rank": rank, "micro_step": step}
            place = where[group[0]] if group else None
            if kind_of.get(step, kind) != kind or place_of.get(group, place) != place:
                continue
            old = loads.get((rank, step), (0,) * len(size))
            load = tuple(a + b for a, b in zip(old, size, strict=True))
            if max(load) > 1 + 1e-9:
                continue
            places = {**place_of, group: place} if group else place_of
            filled = {**loads, (rank, step): load}
            if _fits(rest, filled, {**kind_of, step: kind}, places, ranks, steps, tries):
                return True
    return False
