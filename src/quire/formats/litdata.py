"""litdata's token chunks: ``index.json`` lists chunks of items, each the tokens of a document.

A chunk is a count, absolute offsets (uint32) and the items; the type of all is in the index.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.formats.files import file_beside
from quire.formats.mds import read_index, samples_of
from quire.formats.token_files import TOKENS, Column, Ints, TokenBytes, TokenFile
from quire.storage import AnyPath

OPTIONS: Mapping[str, tuple[str, ...]] = {}
_TYPES = {
    "no_header_tensor": {11: "uint8", 12: "int8", 13: "int16", 14: "int16", 15: "int32",
                         16: "int32", 17: "int64", 18: "int64", 20: "uint16"},
    "no_header_numpy": dict(enumerate(
        ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))),
}  # fmt: skip
"""litdata's numbers of torch's and of numpy's types."""


def recognizes(path: AnyPath) -> bool:
    """Whether this is an index of chunks."""
    return path.name == "index.json" and path.is_file() and "chunks" in read_index(path)


def main_file(path: AnyPath) -> AnyPath | None:
    """The index of a path."""
    return path if path.name == "index.json" and path.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The items of every chunk."""
    del options, known
    index = read_index(path)
    chunks, config = index.get("chunks"), index.get("config")
    if not isinstance(chunks, list) or not chunks or not isinstance(config, dict):
        raise CorruptFile(f"{path} lists no chunks, or has no config; restore it")
    for name in ("compression", "encryption"):
        if config.get(name) is not None:
            raise InvalidOption(
                f"{path}: chunks have {name} {config[name]!r:.40}, which is not read; write them "
                f"without {name}"
            )
    dtype = _type(path, config.get("data_format"))
    return [_open(path, chunk, dtype) for chunk in chunks]


def _type(path: AnyPath, given: object) -> np.dtype[Any]:
    only = given[0] if isinstance(given, list) and len(given) == 1 else None
    kind, _, number = str(only).partition(":")
    known = _TYPES.get(kind, {})
    if not number.isdecimal() or int(number[:9]) not in known:
        raise InvalidOption(
            f"{path} holds items of the format {given!r:.80}, but tokens are no_header_tensor or "
            "no_header_numpy of integers; write them with TokensLoader"
        )
    return np.dtype(known[int(number)]).newbyteorder("<")


def _open(path: AnyPath, chunk: object, dtype: np.dtype[Any]) -> TokenFile:
    about = chunk if isinstance(chunk, dict) else {}
    data, size = TokenBytes(file_beside(path, about.get("filename"))), about.get("chunk_size")
    starts, stops = samples_of(data, size if type(size) is int else -1)
    sizes = stops - starts
    if (sizes % dtype.itemsize).any():
        at = int(np.argmax(sizes % dtype.itemsize != 0))
        raise CorruptFile(
            f"{data.path}: item {at} at byte {starts[at]} has {sizes[at]} bytes, which are not "
            f"{dtype.name}; restore it"
        )
    if about.get("dim") != (total := int(sizes.sum()) // dtype.itemsize):
        raise CorruptFile(
            f"{data.path} has {total} tokens, but {path.name} says {about.get('dim')}"
        )
    return TokenFile(
        path=data.path,
        index=[path],
        lengths=sizes // dtype.itemsize,
        columns={TOKENS: Column(data, dtype, starts)},
    )
