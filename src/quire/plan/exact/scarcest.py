"""The largest document first, with sizes as equal as possible that fill the rest of its row.

Large documents have the fewest partners, so they choose first. Among the exact fills they get the
one whose smallest document is largest: small ones fit anywhere, and are kept for the end.
"""

from __future__ import annotations

from collections import Counter

from quire.plan.exact.problem import Problem, RowKinds

_TRIPLES = 64
"""Smallest sizes tried for a fill of three."""
_READ = 600
"""Documents read for a fill of four or more, and for the best one where no fill is exact."""
_MOST_READ = 1 << 20
"""Documents read in all before `_READ_AFTER` takes the place of `_READ`, two seconds of work:
where no fill is exact every row would read as many."""
_READ_AFTER = 60


def scarcest_first(problem: Problem, kinds: RowKinds | None = None) -> RowKinds:
    """Rows for all documents, in addition to those given.

    Every kind of row uses up one of its sizes, so there are at most as many kinds as sizes.

    >>> kinds = scarcest_first(Problem.of([6, 5, 4, 3], [1, 1, 2, 2], max_length=10, cap=9))
    >>> kinds.num_rows  # 6 + 4, 5 + 3, 4 + 3: best-fit finds the same
    3
    """
    kinds = kinds or RowKinds()
    stock = Stock(problem.counts, problem.space)
    while stock.sizes:
        row = _take_row(stock, problem)
        kinds.add(row, 1 + stock.take_again(row))
    return kinds


class Stock:
    """How many documents of each size are left, and which sizes there are, as the bits of a number.

    A second number has the same bits in reverse order. Shifted by a sum and combined with the
    first it tells all pairs with that sum, in a microsecond.
    """

    def __init__(self, counts: list[int], space: int) -> None:
        self.counts = list(counts)
        self.num_read = 0
        self.space = space
        bits = "".join("1" if count else "0" for count in counts)
        self.sizes = int(bits[::-1], 2)
        self._mirrored = int(bits, 2)

    @property
    def smallest(self) -> int:
        """The smallest size left."""
        return (self.sizes & -self.sizes).bit_length() - 1

    def take(self, size: int, number: int = 1) -> None:
        """Remove documents of a size."""
        self.counts[size] -= number
        if not self.counts[size]:
            self._flip(size)

    def put_back(self, size: int) -> None:
        """Add a document of a size."""
        if not self.counts[size]:
            self._flip(size)
        self.counts[size] += 1

    def take_again(self, row: list[int]) -> int:
        """Remove the documents of a row as often as there are enough, and return how often."""
        uses = Counter(row)
        times = min(self.counts[size] // number for size, number in uses.items())
        if times:
            for size, number in uses.items():
                self.take(size, times * number)
        return times

    def largest(self, most: int) -> int:
        """The largest size left that is at most this; 0 or less if there is none."""
        return (self.sizes & ((2 << most) - 1)).bit_length() - 1

    def pair(self, total: int) -> int:
        """The smaller of the two most equal sizes with this sum; 0 or less if there are none."""
        upto_half = (2 << (total >> 1)) - 1
        pairs = self.sizes & (self._mirrored >> (self.space - total)) & upto_half
        smaller = pairs.bit_length() - 1
        if smaller + smaller == total and self.counts[smaller] < 2:
            smaller = (pairs ^ (1 << smaller)).bit_length() - 1
        return smaller

    def _flip(self, size: int) -> None:
        self.sizes ^= 1 << size
        self._mirrored ^= 1 << (self.space - size)


def _take_row(stock: Stock, problem: Problem) -> list[int]:
    """Remove the next row; no document left would fit into it, unless it holds the cap."""
    row, space = [stock.largest(problem.space)], problem.space
    stock.take(row[0])
    space -= row[0]
    while stock.sizes and len(row) < problem.cap and space >= stock.smallest:
        largest, slots = stock.largest(problem.space), problem.cap - len(row)
        if space > min(3, slots) * largest:  # three cannot fill it
            repeats = min(slots - 2, stock.counts[largest], space // largest - 3)
            chosen = [largest] * max(1, repeats)
        else:
            chosen = _fill(stock, space, slots)
        for size in chosen:
            stock.take(size)
        row += chosen
        space -= sum(chosen)
    return row


def _fill(stock: Stock, space: int, slots: int) -> list[int]:
    """Sizes that fill the space exactly, the smallest of them as large as possible; or the best."""
    if stock.counts[space]:
        return [space]
    largest = stock.largest(space)
    if slots == 1 or space < 2 * stock.smallest:
        return [largest]
    smaller = stock.pair(space)
    if 3 * smaller >= space or (smaller > 0 and slots == 2):
        return [space - smaller, smaller]
    if slots > 2 and (triple := _triple(stock, space, smaller)):
        return triple
    if smaller > 0:
        return [space - smaller, smaller]
    fullest = _fullest(stock, space)
    return fullest if len(fullest) <= slots else [largest]


def _triple(stock: Stock, space: int, more_than: int) -> list[int]:
    """Three sizes with this sum, the smallest as large as possible, but larger than that."""
    smallest = space // 3
    for _ in range(_TRIPLES):
        smallest = stock.largest(smallest)
        if smallest <= max(0, more_than):
            break
        stock.take(smallest)
        middle = stock.pair(space - smallest)
        stock.put_back(smallest)
        if middle >= smallest:
            return [space - smallest - middle, middle, smallest]
        smallest -= 1
    return []


def _fullest(stock: Stock, space: int) -> list[int]:
    """Sizes whose sum comes closest to the space from below, read from the largest on.

    Bit g of ``gaps`` is set if some of those that were read leave a gap of g.
    """
    gaps = 1 << space
    read, before = list[int](), list[int]()
    sizes = stock.sizes & ((2 << space) - 1)
    most = _READ if stock.num_read < _MOST_READ else _READ_AFTER
    while sizes and len(read) < most and not gaps & 1:
        size = sizes.bit_length() - 1
        sizes ^= 1 << size
        for _ in range(min(stock.counts[size], space // size)):
            more = gaps | gaps >> size
            if more == gaps:
                break
            before.append(gaps)
            read.append(size)
            gaps = more
    stock.num_read += len(read)
    return chosen_sizes(read, before, gaps & -gaps)


def chosen_sizes(read: list[int], before: list[int], gap: int) -> list[int]:
    """The sizes that lead to a gap (given as its bit), those read early if there is a choice."""
    chosen = []
    for size, gaps in zip(reversed(read), reversed(before), strict=True):
        if not gaps & gap:
            chosen.append(size)
            gap <<= size
    return chosen
