"""OLMo: tokens in ``.npy`` files without numpy's header, boundaries in a ``.csv.gz`` beside them.

A line of the metadata begins with the first token of a document and the one after its last. Without
it, documents are told apart by a token, and an end that was cut off is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from quire.errors import CorruptFile, InvalidOption
from quire.formats import token_scan
from quire.formats.compression import damage_as_corrupt_file, open_decompressed
from quire.formats.token_files import TOKENS, Column, Ints, TokenBytes, TokenFile, whole_tokens
from quire.formats.token_scan import choice_needed, scanned_file, type_of
from quire.storage import AnyPath

OPTIONS = {"dtype": ("uint8", "uint16", "uint32", "uint64"), **token_scan.OPTIONS}
_NUMPY = b"\x93NUMPY"


def recognizes(path: AnyPath) -> bool:
    """Whether this is an array without a header."""
    if path.suffix != ".npy" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_NUMPY)) != _NUMPY


def main_file(path: AnyPath) -> AnyPath | None:
    """The array of a path."""
    return path if path.suffix == ".npy" and path.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The documents of one array."""
    if not recognizes(path):
        raise InvalidOption(
            f"{path} has numpy's header, which OLMo's arrays do not have; convert it to parquet"
        )
    data, metadata = TokenBytes(path), path.parent / f"{path.name.removesuffix('.npy')}.csv.gz"
    dtype = type_of(path, options)
    if "eos" in options or not metadata.is_file():
        if dtype is None or "eos" not in options:
            told = "has no metadata (.csv.gz)"
            raise choice_needed(path, "olmo", told, "dtype=uint32,eos=ID")
        return [scanned_file(data, dtype, options, known)]
    starts, stops = _spans(metadata)
    dtype = dtype or _type_from(data, metadata, stops)
    return [
        TokenFile(
            path=path,
            # Named by its tokens: the metadata is found from there.
            index=[path, metadata],
            lengths=stops - starts,
            columns={TOKENS: Column(data, dtype, starts * dtype.itemsize)},
            total=whole_tokens(data, dtype),
        )
    ]


def _spans(metadata: AnyPath) -> tuple[Ints, Ints]:
    """The first tokens of documents, and those after the last."""
    read = pc.ReadOptions(autogenerate_column_names=True)
    convert = pc.ConvertOptions(
        include_columns=["f0", "f1"], column_types={"f0": pa.int64(), "f1": pa.int64()}
    )
    size = metadata.stat().st_size
    with damage_as_corrupt_file(metadata, "cannot be read"):
        with open_decompressed(metadata, size, "gzip") as file:
            if not file.read(1):  # no documents, which Arrow refuses
                return np.zeros(0, np.int64), np.zeros(0, np.int64)
        with open_decompressed(metadata, size, "gzip") as file:
            try:
                table = pc.read_csv(file, read_options=read, convert_options=convert)
            except (KeyError, pa.ArrowException) as error:
                raise CorruptFile(
                    f"{metadata} does not hold lines of start,end,…: {error}; restore it"
                ) from error
    if table["f0"].null_count or table["f1"].null_count:
        raise CorruptFile(f"{metadata} lacks a start or an end; restore it")
    starts, stops = (table[name].to_numpy().astype(np.int64) for name in ("f0", "f1"))
    wrong = (starts < 0) | (stops < starts) | (stops > 1 << 60)
    if wrong.any():
        line = int(np.argmax(wrong))
        raise CorruptFile(
            f"{metadata}: line {line + 1} is a document of tokens {starts[line]} to {stops[line]}"
        )
    return starts, stops


def _type_from(data: TokenBytes, metadata: AnyPath, stops: Ints) -> np.dtype[Any]:
    last = int(stops.max(initial=0))
    if last and data.size in (2 * last, 4 * last):
        return np.dtype("<u2" if data.size == 2 * last else "<u4")
    raise InvalidOption(
        f"{data.path} has {data.size} bytes and {metadata.name} ends at token {last}, so tokens "
        "have neither 2 nor 4 bytes; give the format olmo:dtype=uint16 or olmo:dtype=uint32"
    )
