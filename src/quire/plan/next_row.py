"""The row that leaves next: the oldest document, and those that fill the rest best."""

from __future__ import annotations

from collections.abc import Iterable

from quire.plan.subset_sum import fullest_subset
from quire.plan.waiting import Key, Waiter, Waiting

# Only the end of a row is searched, about this many documents; before it they go in as they
# came. It keeps the bitset narrow: for instructions at 131,072, some 1,300 bits.
NUM_SEARCHED = 8


def take_row(waiting: Waiting[Key], capacity: int, limit: int) -> list[Key]:
    """Keys of the next row, by age, taken out of the documents that wait.

    None of those that go on waiting would fit into it, unless it holds `limit` documents.
    """
    row, space = _take_oldest(waiting, capacity, limit)
    while len(row) < limit and waiting and space >= waiting.smallest:
        sizes = _fill(waiting, space, limit - len(row), capacity, limit)
        row += [waiting.take(size) for size in sizes]
        space -= sum(sizes)
    row.sort()
    return [key for _, key, _ in row]


def _take_oldest(waiting: Waiting[Key], space: int, limit: int) -> tuple[list[Waiter[Key]], int]:
    searched = NUM_SEARCHED * waiting.total // len(waiting)
    size = waiting.first_size
    row = [waiting.take(size)]
    space -= size
    while space > searched and len(row) < limit - NUM_SEARCHED and waiting:
        size = waiting.first_size
        if size > space:
            break
        row.append(waiting.take(size))
        space -= size
    return row, space


def _fill(waiting: Waiting[Key], space: int, picks: int, capacity: int, limit: int) -> list[int]:
    """Sizes to take into the space that a row has left, at most `picks` of them."""
    number, total, smallest = len(waiting), waiting.total, waiting.smallest
    # Near the cap a row should hold as many documents as it may, or the small ones pile up until
    # they leave in rows that the cap ends far from full (web lengths, cap 6: 98.0 %, so 99.9 %).
    near_cap = 2 * total * limit < 3 * capacity * number
    greedy = waiting.largest_fit(space, picks, reserve=smallest if near_cap else 0)
    most = min(picks, space // smallest)
    if most == 1 or most * waiting.largest <= space or (near_cap and len(greedy) == picks):
        return greedy  # it has the largest documents, or as many as the row may hold
    # Documents per row, in eighths: floats would tie the rows to a machine's rounding.
    eighths = min(8 * capacity * number // total, 8 * limit)
    gap = space - sum(greedy)
    if gap <= _tolerance(eighths, capacity // number):
        return greedy
    num_candidates = 16 + 10 * min(8 * NUM_SEARCHED, eighths) // 8
    candidates: Iterable[int] = waiting.first_sizes(num_candidates, largest=space)
    if limit < capacity:
        candidates = sorted(candidates, reverse=True)  # few large ones reach a sum
    fullest = fullest_subset(candidates, space)
    return fullest if space - sum(fullest) < gap and len(fullest) <= picks else greedy


def _tolerance(eighths: int, spacing: int) -> int:
    """The gap that largest-fit may leave before subset sums are tried.

    Where two documents fill a row, an exact fill needs small ones as change, and those run out:
    1000 uniform lengths fill rows to 94.6 % by subset sums alone, to 99.8 % with this. Where
    three or more do, change is plenty. So the tolerance, some gaps between neighbouring sizes,
    halves with every eighth of a document above two.
    """
    return 12 * spacing >> max(0, eighths - 16)
