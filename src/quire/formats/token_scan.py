"""Documents found by the token between them, where no file says where they are.

All tokens are read once. What follows the last end is not lost: it is counted as ``unterminated``,
or kept as a document if the user says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.formats.token_files import TOKENS, Column, Ints, TokenBytes, TokenFile, whole_tokens
from quire.storage import AnyPath

OPTIONS = {"eos": (), "at": ("end", "start"), "tail": ("drop", "keep")}
"""The token, which end of a document it marks, and what becomes of tokens beyond the last."""
_AT_A_TIME = 1 << 22


def type_of(path: AnyPath, options: Mapping[str, str]) -> np.dtype[Any] | None:
    """The type that the user named, if any."""
    return np.dtype(options["dtype"]).newbyteorder("<") if "dtype" in options else None


def scanned_file(
    data: TokenBytes,
    dtype: np.dtype[Any],
    options: Mapping[str, str],
    known: Mapping[str, Ints],
    base: int = 0,
) -> TokenFile:
    """The documents between two marks; ``known`` saves reading all tokens again."""
    total = whole_tokens(data, dtype, base)
    edges = known.get(str(data.path.absolute()))
    if edges is None:
        edges = _edges(data, dtype, base, total, options)
    elif len(edges) and (int(edges[0]) < 0 or int(edges[-1]) > total):
        raise CorruptFile(f"{data.path} has {total} tokens, but documents end at {edges[-1]}")
    return TokenFile(
        path=data.path,
        lengths=np.diff(edges),
        columns={TOKENS: Column(data, dtype, base + edges[:-1] * dtype.itemsize)},
        total=total,
        edges=edges,
    )


def _edges(
    data: TokenBytes, dtype: np.dtype[Any], base: int, total: int, options: Mapping[str, str]
) -> Ints:
    token, keep = _token(data.path, dtype, options), options.get("tail") == "keep"
    found = [np.zeros(0, np.int64)]
    for first in range(0, total, _AT_A_TIME):
        count = min(_AT_A_TIME, total - first)
        values = data.array(dtype, base + first * dtype.itemsize, count)
        found.append(first + np.flatnonzero(values == token))
    marks = np.concatenate(found)
    if options.get("at") == "start":
        before = [0] if keep and total and not (len(marks) and marks[0] == 0) else []
        return np.concatenate([before, marks, [total]]).astype(np.int64)
    after = [total] if keep and total and not (len(marks) and marks[-1] == total - 1) else []
    return np.concatenate([[0], marks + 1, after]).astype(np.int64)


def _token(path: AnyPath, dtype: np.dtype[Any], options: Mapping[str, str]) -> int:
    try:
        token = int(options["eos"])
    except ValueError:
        raise InvalidOption(f"eos={options['eos']!r} must be the id of a token") from None
    if not 0 <= token <= np.iinfo(dtype).max:
        raise InvalidOption(f"{path} holds {dtype.name}, which cannot be eos={token}")
    return token


def choice_needed(path: AnyPath, name: str, told: str, choice: str) -> InvalidOption:
    """The error where documents cannot be told apart before the user has chosen."""
    return InvalidOption(
        f"{path} {told}, and nothing says where its documents are; if a token separates "
        f"them, give the format {name}:{choice} (an end of text inside of chats would split them)"
    )
