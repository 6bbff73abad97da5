"""llm.c and nanoGPT: ``.bin`` files of tokens, with a header of 256 int32 or without any.

Documents are told apart by the end of text, which llm.c puts at the start of each and nanoGPT at
the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.formats import token_scan
from quire.formats.token_files import Ints, TokenBytes, TokenFile
from quire.formats.token_scan import choice_needed, scanned_file, type_of
from quire.storage import AnyPath

OPTIONS = {"dtype": ("uint16", "uint32", "int32"), **token_scan.OPTIONS}
_HEADER = 1024
_KINDS = {(20240520, 1): "uint16", (20240801, 7): "uint32"}
"""By magic number and version."""


def recognizes(path: AnyPath) -> bool:
    """Whether this file has llm.c's header."""
    return path.suffix == ".bin" and path.is_file() and _kind(path) is not None


def main_file(path: AnyPath) -> AnyPath | None:
    """The tokens of a path."""
    return path if path.suffix == ".bin" and path.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The documents of one file."""
    data, found = TokenBytes(path), _kind(path)
    dtype = type_of(path, options)
    if found is None and dtype is None:
        raise InvalidOption(
            f"{path} has no header of llm.c at byte 0; if it holds nothing but tokens, give their "
            "type, such as llmc:dtype=uint16,eos=50256,at=end"
        )
    if found is not None:
        dtype = np.dtype(found).newbyteorder("<")
        _require_count(data, dtype)
    if "eos" not in options or "at" not in options or dtype is None:
        raise choice_needed(path, "llmc", "has no index", "eos=50256,at=start (or at=end)")
    return [scanned_file(data, dtype, options, known, 0 if found is None else _HEADER)]


def _kind(path: AnyPath) -> str | None:
    with path.open("rb") as file:
        raw = file.read(8)
    pair = np.frombuffer(raw, "<i4").tolist() if len(raw) == 8 else [0, 0]
    if pair[0] in {magic for magic, _ in _KINDS} and tuple(pair) not in _KINDS:
        raise CorruptFile(f"{path} has version {pair[1]} at byte 4, which is not one of llm.c's")
    return _KINDS.get((pair[0], pair[1]))


def _require_count(data: TokenBytes, dtype: np.dtype[Any]) -> None:
    if data.size < _HEADER:
        raise CorruptFile(f"{data.path} has {data.size} bytes, but its header has {_HEADER}")
    count = int(data.array(np.dtype("<i4"), 8, 1)[0])
    if data.size != _HEADER + count * dtype.itemsize:
        raise CorruptFile(
            f"{data.path} has {data.size} bytes, but {count} tokens, which it counts at byte 8, "
            f"take up {_HEADER + count * dtype.itemsize}; it was cut off: restore it"
        )
