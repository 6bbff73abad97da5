"""A seed for each shard, so that no two are shuffled alike."""

from __future__ import annotations

import hashlib


def shard_seed(seed: int, partition: int, piece: int) -> int:
    """The seed of one shard, from that of the corpus."""
    digest = hashlib.sha256(f"{seed} {partition} {piece}".encode()).digest()
    return int.from_bytes(digest[:8], "little")
