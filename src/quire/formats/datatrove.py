"""datatrove: ``.ds`` holds tokens, ``.ds.index`` where documents end, ``.ds.loss`` what is trained.

The index is uint64 ends without a header, the loss one byte for each token. The type is in the
second part of the first line of ``.ds.metadata``, or follows from the last end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.formats import token_scan
from quire.formats.token_files import TOKENS, Column, Ints, TokenBytes, TokenFile, whole_tokens
from quire.formats.token_scan import scanned_file, type_of
from quire.formats.token_tables import TokenFormat
from quire.storage import AnyPath

OPTIONS = {"dtype": ("uint16", "uint32"), **token_scan.OPTIONS}
_SIZES = {"2": "uint16", "4": "uint32"}
LOSS = "loss_mask"


def recognizes(path: AnyPath) -> bool:
    """Whether this is a file of tokens; the suffix is only datatrove's."""
    return path.suffix == ".ds" and path.is_file()


def main_file(path: AnyPath) -> AnyPath | None:
    """The tokens of a path."""
    return path if path.suffix == ".ds" and path.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The documents of one file."""
    data, index, loss = TokenBytes(path), _with(path, ".index"), _with(path, ".loss")
    if not index.is_file():
        return [_without_index(data, options, known)]
    count = whole_tokens(TokenBytes(index), np.dtype("<u8"))
    ends = TokenBytes(index).array(np.dtype("<u8"), 0, count)
    dtype = type_of(path, options) or _recorded_type(path) or _type_from(data, ends)
    edges = _edges(data, index, ends, dtype)
    columns = {TOKENS: Column(data, dtype, edges[:-1] * dtype.itemsize)}
    beside = [one for one in (_with(path, ".metadata"),) if one.is_file()]
    if loss.is_file():
        columns[LOSS] = _loss(TokenBytes(loss), edges, whole_tokens(data, dtype))
        beside.append(loss)
    return [
        TokenFile(
            path=path,
            # Named by its tokens: the others are found from there.
            index=[path, index, *beside],
            lengths=np.diff(edges),
            columns=columns,
            total=whole_tokens(data, dtype),
        )
    ]


def _edges(data: TokenBytes, index: AnyPath, ends: Ints, dtype: np.dtype[Any]) -> Ints:
    total = whole_tokens(data, dtype)
    wrong = ends > total
    wrong[1:] |= ends[1:] < ends[:-1]
    if wrong.any():
        at = int(np.argmax(wrong))
        raise CorruptFile(
            f"{index}: document {at} ends at token {ends[at]} (byte {8 * at}), before the one "
            f"before it or after the {total} {dtype.name} of {data.path}; restore both files"
        )
    return np.concatenate([[0], ends.astype(np.int64)])


def _recorded_type(path: AnyPath) -> np.dtype[Any] | None:
    metadata = _with(path, ".metadata")
    if not metadata.is_file():
        return None
    with metadata.open("rb") as file:
        first = file.read(4096).split(b"\n")[0].decode("utf-8", "replace")
    size = first.rpartition("|")[2].strip()
    if size not in _SIZES:
        raise CorruptFile(f"{metadata} starts with {first!r:.80}, which does not end with |2 or |4")
    return np.dtype(_SIZES[size]).newbyteorder("<")


def _type_from(data: TokenBytes, ends: Ints) -> np.dtype[Any]:
    last = int(ends[-1]) if len(ends) else 0
    for size, name in _SIZES.items():
        if last and last * int(size) == data.size:
            return np.dtype(name).newbyteorder("<")
    raise InvalidOption(
        f"{data.path} has {data.size} bytes and its last document ends at token {last}, so tokens "
        "have neither 2 nor 4 bytes; give the format datatrove:dtype=uint16 or "
        "datatrove:dtype=uint32"
    )


def _loss(data: TokenBytes, edges: Ints, total: int) -> Column:
    if data.size != total:
        raise CorruptFile(
            f"{data.path} has {data.size} bytes, but there is one for each of {total} tokens; it "
            "was cut off: restore it"
        )
    return Column(data, np.dtype("uint8"), edges[:-1])


def _without_index(
    data: TokenBytes, options: Mapping[str, str], known: Mapping[str, Ints]
) -> TokenFile:
    dtype = type_of(data.path, options) or _recorded_type(data.path)
    if dtype is None or "eos" not in options:
        raise token_scan.choice_needed(
            data.path, "datatrove", "has no .index", "dtype=uint16,eos=ID"
        )
    return scanned_file(data, dtype, options, known)


def _with(path: AnyPath, suffix: str) -> AnyPath:
    return path.parent / (path.name + suffix)


def _beside(path: AnyPath) -> list[AnyPath]:
    return [
        one for one in (_with(path, s) for s in (".index", ".loss", ".metadata")) if one.is_file()
    ]


FORMAT = TokenFormat("datatrove", open_files, _beside)
