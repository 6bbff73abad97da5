"""The next row in literal cases, and the rows of whole streams, which must not change."""

from __future__ import annotations

import hashlib

import pytest

from quire.plan.buffer import Buffer, _tolerance, take_row
from quire.plan.online import OnlinePacker


def buffered(sizes: list[int]) -> Buffer[int]:
    buffer: Buffer[int] = Buffer()
    for age, size in enumerate(sizes):
        buffer.append((age, age, size))
    return buffer


@pytest.mark.parametrize(
    ("sizes", "max_length", "limit", "row"),
    [
        ([7], 10, 10, [0]),
        ([7, 7], 10, 10, [0]),
        ([10, 1], 10, 10, [0]),
        ([2, 3, 4, 5], 10, 10, [0, 1, 3]),
        ([2, 3, 4, 5], 10, 1, [0]),
        ([2, 3, 4, 5], 10, 2, [0, 3]),
        ([5, 8, 12, 7, 4, 4, 4], 20, 20, [0, 1, 3]),
        ([1] * 30, 12, 12, list(range(12))),
        ([3] * 9, 10, 10, [0, 1, 2]),
        ([9, 4, 4, 4, 4, 1], 20, 20, [0, 1, 2, 5]),
        # 1.5 times the cap's share of a row is not near the cap: the row is filled exactly.
        ([2, 37, 3], 40, 3, [0, 1]),
        # The space left is what eight documents take on average: they are searched.
        ([1, 2, 1, 2, 1, 1, 2, 2, 1, 1, 2], 12, 12, [0, 1, 2, 3, 6, 7, 10]),
        # Eight documents may still go into a row of twelve: they are searched.
        (
            [1, 2, 1, 3, 1, 3, 2, 1, 4, 1, 2, 1, 4, 2, 4, 1, 3, 1, 4, 1],
            100,
            12,
            [0, 1, 2, 3, 5, 6, 8, 10, 12, 14, 16, 18],
        ),
        # The gap next to the 5000 is tolerated for three per row: 18,000 is not searched.
        ([980_000, 5000, 18_000], 10**6, 3, [0, 1]),
        # The next in the queue fills the row, and is too large to be searched for.
        ([1, 29] + [1] * 40, 30, 10, [0, 1]),
    ],
)
def test_a_row_is_the_oldest_document_and_what_fills_it_best(sizes, max_length, limit, row):
    buffer = buffered(sizes)
    assert take_row(buffer, max_length, limit) == row
    assert [age for age, _, _ in buffer] == [i for i in range(len(sizes)) if i not in row]


def test_before_its_end_a_row_takes_documents_in_order():
    # Eight documents of average size are searched; the oldest go before them.
    sizes = [1, 2] * 60
    row = take_row(buffered(sizes), 60, 60)
    assert row[:25] == list(range(25))
    assert sum(sizes[age] for age in row) == 60


def test_only_the_first_documents_of_the_queue_are_searched():
    # Three go in as they came. Of the others, 16 plus 10 for each of eight are candidates.
    sizes = [35, 42, 49, 28] * 25
    assert 98 in take_row(buffered([*sizes[:98], 8]), 400, 400)  # 8 + 38 * 7 fill the rest
    assert 99 not in take_row(buffered([*sizes[:99], 8]), 400, 400)


@pytest.mark.parametrize(
    ("eighths", "spacing", "gap"),
    [(8, 5, 60), (16, 5, 60), (17, 5, 30), (18, 5, 15), (19, 5, 7), (40, 5, 0), (16, 0, 0)],
)
def test_the_tolerated_gap_halves_with_every_eighth_of_a_document_above_two(eighths, spacing, gap):
    assert _tolerance(eighths, spacing) == gap


def stream(number: int, least: int, most: int) -> list[int]:
    """Lengths between two bounds, more short ones than long, the same on every machine."""
    lengths, seed = [], 7
    for _ in range(number):
        seed = (seed * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        part = (seed >> 33) % 4096
        lengths.append(least + (most - least) * part * part // 4095**2)
    return lengths


STREAMS = {
    "web": ({"max_length": 4096, "buffer_size": 64}, (1, 3000)),
    "capped": ({"max_length": 4096, "buffer_size": 64, "max_documents_per_row": 6}, (1, 2500)),
    "cap ends rows": (
        {"max_length": 4096, "buffer_size": 40, "max_documents_per_row": 4},
        (1, 900),
    ),
    "two a row": ({"max_length": 2048, "buffer_size": 100}, (500, 1548)),
    "three a row": ({"max_length": 2048, "buffer_size": 50}, (400, 1000)),
    "many a row": ({"max_length": 8192, "buffer_size": 32}, (1, 200)),
    "aligned": ({"max_length": 4096, "buffer_size": 64, "align": 16}, (1, 3000)),
    "even": ({"max_length": 4095, "buffer_size": 64}, (1, 1500)),
    "wide": ({"max_length": 10**9, "buffer_size": 64}, (10**6, 6 * 10**8)),
}
ROWS = {
    "web": (199, "f0a6be19cc7abfc8"),
    "capped": (166, "e082033789ab8812"),
    "cap ends rows": (200, "dcdb18e5d032ff5f"),
    "two a row": (340, "e3e53f479f29f194"),
    "three a row": (236, "cbedb7c0f5c3af82"),
    "many a row": (7, "53f37e95a33674e2"),
    "aligned": (201, "72f2a4c804911bed"),
    "even": (200, "52abafa671c1be2b"),
    "wide": (164, "9a9497bbdd17d2c2"),
}
"""How many rows each stream has, and the start of the SHA-256 of all keys in them."""


@pytest.mark.parametrize("name", STREAMS)
def test_the_rows_of_a_stream_stay_the_same(name):
    """A state saved by one release continues identically in the next."""
    options, (least, most) = STREAMS[name]
    packer: OnlinePacker[int] = OnlinePacker(**options)
    factor = 2 if name == "even" else 1
    lengths = [length * factor for length in stream(800, least, most)]
    rows = [row for key, length in enumerate(lengths) for row in packer.add(key, length)]
    rows += packer.flush()
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    assert (len(rows), digest[:16]) == ROWS[name]
