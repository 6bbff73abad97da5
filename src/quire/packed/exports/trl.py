"""Parquet with TRL's ``seq_lengths``, which its collator and trainer take as packed rows."""

from __future__ import annotations

from collections.abc import Mapping

from quire.packed.exports.parts import Part
from quire.packed.exports.tables import SEQ_LENGTHS, record_batches, write_parquet

TOKENS_ONLY = False
TOKENS_PER_PART = 1 << 26
OPTIONS: Mapping[str, tuple[str, ...]] = {}


def names(part: Part) -> list[str]:
    """One parquet file, in a folder that holds nothing else."""
    return [f"data/{part.stem}.parquet"]


def write(part: Part) -> None:
    """Write one parquet file."""
    (part.folder / "data").mkdir(exist_ok=True)
    write_parquet(part, names(part)[0], record_batches(part, SEQ_LENGTHS))


def finish(parts: list[Part]) -> list[str]:
    """Write nothing: ``load_dataset("parquet", …)`` opens the folder ``data``."""
    del parts
    return []
