"""Random orders that follow from what they are for, and from nothing else."""

from __future__ import annotations

import hashlib

from quire.plan.build import permutation


def order_of(count: int, *purpose: object) -> list[int]:
    """A random order of ``count`` things, the same wherever and whenever it is asked for.

    >>> order_of(5, "shards", 0, 1) == order_of(5, "shards", 0, 1) != order_of(5, "shards", 0, 2)
    True
    """
    key = " ".join(str(part) for part in purpose).encode()
    seed = int.from_bytes(hashlib.sha256(key).digest()[:16], "little")
    order: list[int] = permutation(count, seed).tolist()
    return order
