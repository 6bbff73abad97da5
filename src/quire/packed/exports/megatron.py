"""Megatron's ``.bin`` and ``.idx``, one pair a part.

With unit=fragments every fragment is a sequence and every row a document, so that both are kept.
With unit=rows every row is a sequence, as Megatron's GPT dataset reads them whole, and boundaries
are in a parquet file beside them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.files import whole_file
from quire.packed.exports.parts import TOKENS, Part, as_type, fragment_lengths
from quire.packed.rows import STARTS

TOKENS_ONLY = True
TOKENS_PER_PART = 1 << 30
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "unit": ("fragments", "rows"),
    "dtype": ("int32", "uint16", "int64"),
}
_CODES = {"int32": 4, "int64": 5, "uint16": 8}


def names(part: Part) -> list[str]:
    """The tokens, the boundaries of rows, and the index, which makes the part whole."""
    boundaries = [f"{part.stem}.boundaries.parquet"] if part.settings["unit"] == "rows" else []
    return [f"{part.stem}.bin", *boundaries, f"{part.stem}.idx"]


def write(part: Part) -> None:
    """Write one pair of files."""
    dtype, by_row = np.dtype(part.settings["dtype"]).newbyteorder("<"), len(names(part)) == 3
    lengths: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    starts: list[pa.Array] = []
    with whole_file(part.folder / names(part)[0]) as temporary, temporary.open("wb") as sink:
        number = part.rows.start
        for batch in part.batches():
            for row in batch:
                sink.write(as_type(row[TOKENS], dtype, number).tobytes())
                own = fragment_lengths(row)
                lengths.append(np.array([own.sum()]) if by_row else own)
                number += 1
            if by_row:
                starts += [row[STARTS] for row in batch]
    if by_row:
        with whole_file(part.folder / names(part)[1]) as temporary:
            lists = pa.array(starts, pa.list_(pa.int32()))
            pq.write_table(pa.table({STARTS: lists}), temporary)
    with whole_file(part.folder / names(part)[-1]) as temporary:
        temporary.write_bytes(_index(lengths, dtype))


def finish(parts: list[Part]) -> list[str]:
    """Write nothing: a trainer takes the prefixes of all parts."""
    del parts
    return []


def _index(
    lengths: list[np.ndarray[tuple[int], np.dtype[np.int64]]], dtype: np.dtype[np.generic]
) -> bytes:
    sizes = np.concatenate([np.zeros(0, np.int64), *lengths])
    pointers = (np.cumsum(sizes) - sizes) * dtype.itemsize
    ends = np.cumsum([0, *map(len, lengths)])
    head = struct.pack(
        "<9sQBQQ", b"MMIDIDX", 1, _CODES[dtype.newbyteorder("=").name], len(sizes), len(ends)
    )
    arrays = ((sizes, "<i4"), (pointers, "<i8"), (ends, "<i8"))
    return head + b"".join(values.astype(kind).tobytes() for values, kind in arrays)
