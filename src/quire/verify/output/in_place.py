"""Recount the files of another system that plans are for: fingerprints, and every document."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quire.errors import CorruptFile, QuireError
from quire.printable import counted
from quire.storage import AnyPath, as_path
from quire.verify.output.packer_corpora import read_packed_corpus
from quire.verify.output.shards import Ints

_BLOCK, _NUM_BLOCKS = 1 << 16, 16
_HEADER = struct.Struct("<9sQBQQ")
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}
"""Bytes of a token, by Megatron's type code."""


@dataclass(kw_only=True)
class Recounted:
    """The documents that were found, and what is wrong."""

    lengths: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Tokens that are in no document, by reason."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recount_corpus(folder: AnyPath, manifest: Mapping[str, Any]) -> Recounted:
    """Every document of the files, if they are those that were planned."""
    record, found = manifest["corpus"], Recounted()
    paths = [_place(folder, entry) for entry in record["files"]]
    for path, entry in zip(paths, record["files"], strict=True):
        found.problems += _changes(path, entry)
    if found.problems:
        return found
    named = [paths[number] for number in record["named"]]
    name, _, options = str(record["format"]).partition(":")
    try:
        if name in _OWN_READERS:
            parts = [_OWN_READERS[name](path, options) for path in named]
            found.lengths = np.concatenate([np.zeros(0, np.int64), *(part for part, _ in parts)])
            left = sum(total for _, total in parts) - int(found.lengths.sum())
            found.dropped = {"unterminated": left} if left else {}
        else:
            found.lengths, found.dropped = read_packed_corpus(named, str(record["format"]))
            found.notes.append(
                f"documents of {name} were found by the packer's reader: there is no second one"
            )
    except (QuireError, OSError, struct.error, ValueError) as error:
        found.problems.append(str(error))
        return found
    found.problems += _count_problems(found, manifest)
    return found


def _count_problems(found: Recounted, manifest: Mapping[str, Any]) -> Iterator[str]:
    about, recorded = manifest["documents"], manifest["corpus"].get("dropped", {})
    if about["count"] != len(found.lengths):
        yield f"documents: count is {len(found.lengths)}, not {about['count']}"
    if about["tokens"] != (total := int(found.lengths.sum())):
        yield f"documents: tokens is {total}, not {about['tokens']}"
    if dict(found.dropped) != dict(recorded):
        yield f"tokens in no document: {dict(found.dropped)}, but the manifest says {recorded}"


def _place(folder: AnyPath, entry: Mapping[str, Any]) -> AnyPath:
    """Where a file is now: where it was, or as far from the output as it was."""
    path = as_path(entry["path"])
    if isinstance(path, Path) and not path.exists() and entry["relative"] is not None:
        beside = as_path(os.path.normpath(f"{folder}/{entry['relative']}"))
        return beside if beside.exists() else path
    return path


def _changes(path: AnyPath, entry: Mapping[str, Any]) -> Iterator[str]:
    if not path.is_file():
        yield f"{path} is missing, and the plans are for its documents"
        return
    size = path.stat().st_size
    if size != entry["bytes"]:
        yield f"{path} has {size} bytes, but had {entry['bytes']} when it was planned"
    elif _sampled(path, size) != entry["fingerprint"]:
        yield f"{path} has other bytes than when it was planned: its fingerprint differs"


def _sampled(path: AnyPath, size: int) -> str:
    """SHA-256 of the size and of blocks that are spread over the file, as the manifest says."""
    digest = hashlib.sha256(b"%d" % size)
    with path.open("rb") as file:
        if size <= _NUM_BLOCKS * _BLOCK:
            digest.update(file.read())
        else:
            for number in range(_NUM_BLOCKS):
                file.seek(number * (size - _BLOCK) // (_NUM_BLOCKS - 1))
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()


def _megatron(path: AnyPath, options: str) -> tuple[Ints, int]:
    """The lengths of Megatron's sequences, or of documents of several, and all tokens."""
    with path.open("rb") as file:
        raw = file.read()
    _, _, code, num_sequences, num_ends = _HEADER.unpack_from(raw)
    at = _HEADER.size
    lengths = np.frombuffer(raw, "<i4", num_sequences, at).astype(np.int64)
    places = np.frombuffer(raw, "<i8", num_sequences, at + lengths.nbytes // 2)
    ends = np.frombuffer(raw, "<i8", num_ends, at + 12 * num_sequences)
    tokens = path.parent / f"{path.name[: -len('.idx')]}.bin"
    _require_apart(tokens, places, lengths * _SIZES[code])
    num_tokens = tokens.stat().st_size // _SIZES[code]
    if "unit=documents" not in options:
        return lengths, num_tokens
    totals: Ints = np.append(0, np.cumsum(lengths))
    joined: Ints = np.diff(totals[ends])
    return joined, num_tokens


def _require_apart(path: AnyPath, starts: Ints, sizes: Ints) -> None:
    """Raise if two documents share a byte, or one is not in the file."""
    starts, sizes = starts[sizes > 0], sizes[sizes > 0]
    order = np.argsort(starts, kind="stable")
    edges = np.append(starts[order], path.stat().st_size)
    wrong = (starts[order] < 0) | (starts[order] + sizes[order] > edges[1:])
    if wrong.any():
        at = order[int(np.argmax(wrong))]
        raise CorruptFile(
            f"{path}: {counted(int(sizes[at]), 'byte')} of a document at byte {starts[at]} are not "
            "in the file, or belong to another one, too"
        )


_OWN_READERS: Mapping[str, Callable[[AnyPath, str], tuple[Ints, int]]] = {"megatron": _megatron}
