"""Megatron: ``PREFIX.bin`` holds tokens, ``PREFIX.idx`` where each sequence is.

The index is ``MMIDIDX``, version, type code, two counts, then lengths (int32), byte offsets (int64)
and the sequences at which documents end (int64); multimodal ones end with a mode (int8) of each
sequence. Megatron's GPT dataset reads every sequence as a document; its BERT dataset joins them.
Where the two differ, the user must choose the ``unit``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.formats.token_files import TOKENS, Column, Ints, TokenBytes, TokenFile, whole_tokens
from quire.formats.token_tables import TokenFormat
from quire.storage import AnyPath

MAGIC = b"MMIDIDX\0\0"
_HEADER = struct.Struct("<9sQBQQ")
TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32",
    8: "uint16",
}  # fmt: skip
_AT_A_TIME = 1 << 20
UNITS = ("sequences", "documents")
OPTIONS = {"unit": UNITS}


def recognizes(path: AnyPath) -> bool:
    """Whether this file is an index of Megatron's, or its tokens."""
    if path.suffix not in (".idx", ".bin"):
        return False
    index = _with_suffix(path, ".idx")
    if not index.is_file():
        return False
    with index.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def main_file(path: AnyPath) -> AnyPath | None:
    """The index that a path means: an index, its tokens, or the prefix of both."""
    if path.suffix in (".idx", ".bin") and path.is_file():
        return _with_suffix(path, ".idx")
    index = path.parent / f"{path.name}.idx"
    return index if index.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The documents of one index."""
    del known
    return [_open(path, options)]


def _open(path: AnyPath, options: Mapping[str, str]) -> TokenFile:
    index = TokenBytes(path)
    dtype, counts = _header(index)
    num_sequences, num_ends = counts
    at = _HEADER.size
    lengths = index.array(np.dtype("<i4"), at, num_sequences)
    pointers = index.array(np.dtype("<i8"), at + 4 * num_sequences, num_sequences)
    ends = index.array(np.dtype("<i8"), at + 12 * num_sequences, num_ends)
    _require_tokens(index, at + 12 * num_sequences + 8 * num_ends, num_sequences)
    is_plain = _is_plain(ends, num_sequences)
    if not is_plain:
        _require_ends(path, ends, num_sequences)
    data = TokenBytes(_with_suffix(path, ".bin"))
    # Before documents are joined, so that an error names the sequence.
    column = Column(data, dtype, pointers)
    found = TokenFile(
        path=data.path,
        index=[path],
        lengths=lengths,
        columns={TOKENS: column},
        total=whole_tokens(data, dtype),
    )
    _require_between_tokens(path, found)
    if is_plain or _unit(path, ends, num_sequences, options) == "sequences":
        return found
    return _joined(found, ends)


def _is_plain(ends: Ints, num_sequences: int) -> bool:
    """Whether each sequence is a document, so that there is nothing to choose."""
    pieces = range(0, len(ends), _AT_A_TIME)
    return len(ends) == num_sequences + 1 and all(
        np.array_equal(part, np.arange(first, first + len(part)))
        for first, part in ((first, ends[first : first + _AT_A_TIME]) for first in pieces)
    )


def _header(index: TokenBytes) -> tuple[np.dtype[np.generic], tuple[int, int]]:
    path, size = index.path, index.size
    if size < _HEADER.size:
        raise CorruptFile(f"{path} has {size} bytes, but an index starts with {_HEADER.size}")
    raw = index.array(np.dtype("u1"), 0, _HEADER.size).tobytes()
    magic, version, code, num_sequences, num_ends = _HEADER.unpack(raw)
    if magic != MAGIC:
        raise CorruptFile(
            f"{path} starts with {magic!r} at byte 0, not {MAGIC!r}; it is not an index"
        )
    if version != 1:
        swapped = " (it is big-endian)" if version == 1 << 56 else ""
        raise CorruptFile(f"{path} has version {version} at byte 9, not 1{swapped}")
    if code not in TYPES:
        raise CorruptFile(
            f"{path} has the type code {code} at byte 17; known are "
            f"{', '.join(f'{known} ({name})' for known, name in TYPES.items())}"
        )
    needed = _HEADER.size + 12 * num_sequences + 8 * num_ends
    if size not in (needed, needed + num_sequences):
        raise CorruptFile(
            f"{path} has {size} bytes, but {num_sequences} sequences and {num_ends} document ends, "
            f"which it counts at bytes 18 and 26, take up {needed}; it was cut off or damaged: "
            "restore it"
        )
    return np.dtype(TYPES[code]).newbyteorder("<"), (num_sequences, num_ends)


def _require_tokens(index: TokenBytes, at: int, num_sequences: int) -> None:
    """Raise if a sequence has a mode, which images have and tokens have not."""
    modes = index.array(np.dtype("i1"), at, num_sequences if index.size > at else 0)
    if modes.any():
        first = int(np.argmax(modes != 0))
        raise InvalidOption(
            f"{index.path}: sequence {first} has mode {modes[first]} at byte {at + first}, so it "
            "does not hold text; write the sequences of mode 0 to a corpus of their own"
        )


def _require_ends(path: AnyPath, ends: Ints, num_sequences: int) -> None:
    at = _HEADER.size + 12 * num_sequences
    if not len(ends) or ends[0] != 0 or ends[-1] != num_sequences or (np.diff(ends) < 0).any():
        raise CorruptFile(
            f"{path} has document ends at byte {at} that do not rise from 0 to its {num_sequences} "
            "sequences; it was damaged, or its writer never ended a document: write it again"
        )


def _require_between_tokens(path: AnyPath, file: TokenFile) -> None:
    """Raise if a sequence starts inside a token, from where its ids would all be wrong."""
    pointers, size = file.columns[TOKENS].pointers, file.columns[TOKENS].dtype.itemsize
    if not np.bitwise_or.reduce(pointers) & (size - 1):  # sizes are powers of two
        return
    wrong = (pointers % size != 0) & (file.lengths > 0)
    if wrong.any():
        first = int(np.argmax(wrong))
        at = _HEADER.size + 4 * len(file) + 8 * first
        raise CorruptFile(
            f"{path} says at byte {at} that sequence {first} starts at byte {pointers[first]}, "
            f"inside a token of {size} bytes; it was damaged: restore it"
        )


def _unit(path: AnyPath, ends: Ints, num_sequences: int, options: Mapping[str, str]) -> str:
    if "unit" not in options:
        raise InvalidOption(
            f"{path} has {num_sequences} sequences in {len(ends) - 1} documents, so the choice is "
            "ambiguous; give the format megatron:unit=sequences (as Megatron trains GPT) or "
            "megatron:unit=documents (sequences of a document are joined)"
        )
    return options["unit"]


def _joined(file: TokenFile, ends: Ints) -> TokenFile:
    """Documents of several sequences, which must follow each other in the file."""
    column = file.columns[TOKENS]
    totals = np.concatenate([[0], np.cumsum(file.lengths, dtype=np.int64)])
    stops = column.pointers[:-1] + file.lengths[:-1].astype(np.int64) * column.dtype.itemsize
    apart = np.flatnonzero(column.pointers[1:] != stops) + 1
    inside = apart[~np.isin(apart, ends)]
    if len(inside):
        raise CorruptFile(
            f"{file.index[0]}: sequence {inside[0]} does not follow the one before it, though "
            "both belong to one document; use megatron:unit=sequences"
        )
    firsts = np.minimum(ends[:-1], max(0, len(file) - 1))
    pointers = column.pointers[firsts] if len(file) else np.zeros(len(ends) - 1, np.int64)
    return TokenFile(
        path=file.path,
        index=file.index,
        lengths=np.diff(totals[ends]),
        columns={TOKENS: Column(column.data, column.dtype, pointers)},
        total=file.total,
    )


def _with_suffix(path: AnyPath, suffix: str) -> AnyPath:
    return path.parent / (path.name.removesuffix(path.suffix) + suffix)


def _beside(path: AnyPath) -> list[AnyPath]:
    return [_with_suffix(path, ".bin")]


FORMAT = TokenFormat("megatron", open_files, _beside)
