"""OLMo's arrays: tokens without a header, and the documents in a ``.csv.gz`` beside them.

A line is the first token of a fragment, the one after its last, and the number of its row.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import numpy as np

from quire.files import whole_file
from quire.packed.exports.parts import TOKENS, Part, as_type, fragment_lengths

TOKENS_ONLY = True
TOKENS_PER_PART = 1 << 30
OPTIONS: Mapping[str, tuple[str, ...]] = {"dtype": ("uint32", "uint16")}


def names(part: Part) -> list[str]:
    """The tokens, then the metadata, which makes the part whole."""
    return [f"{part.stem}.npy", f"{part.stem}.csv.gz"]


def write(part: Part) -> None:
    """Write one array and its metadata."""
    dtype, first = np.dtype(part.settings["dtype"]).newbyteorder("<"), 0
    tokens, metadata = (part.folder / name for name in names(part))
    with (
        whole_file(metadata) as index,
        index.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as lines,  # the same bytes at any time
        whole_file(tokens) as temporary,
        temporary.open("wb") as sink,
    ):
        number = part.rows.start
        for batch in part.batches():
            for row in batch:
                sink.write(as_type(row[TOKENS], dtype, number).tobytes())
                for length in fragment_lengths(row).tolist():
                    lines.write(b"%d,%d,%d\n" % (first, first + length, number))
                    first += length
                number += 1


def finish(parts: list[Part]) -> list[str]:
    """Write nothing: no file describes all parts."""
    del parts
    return []
