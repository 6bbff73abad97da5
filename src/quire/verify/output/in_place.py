"""Recount the files of another system that plans are for: fingerprints, and every document."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quire.errors import QuireError
from quire.storage import AnyPath, as_path
from quire.verify.output.corpora import READERS
from quire.verify.output.shards import Ints

_BLOCK, _NUM_BLOCKS = 1 << 16, 16


@dataclass(kw_only=True)
class Recounted:
    """The documents that were found, and what is wrong."""

    lengths: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Tokens that are in no document, by reason."""
    problems: list[str] = field(default_factory=list)


def recount_corpus(folder: AnyPath, manifest: Mapping[str, Any]) -> Recounted:
    """Every document of the files, if they are those that were planned."""
    record, found = manifest["corpus"], Recounted()
    paths = [_place(folder, entry) for entry in record["files"]]
    for path, entry in zip(paths, record["files"], strict=True):
        found.problems += _changes(path, entry)
    if found.problems:
        return found
    named = [paths[number] for number in record["named"]]
    name, _, rest = str(record["format"]).partition(":")
    options = dict(item.split("=", 1) for item in rest.split(",") if item)
    try:
        parts = [READERS[name](path, options) for path in named]
        found.lengths = np.concatenate([np.zeros(0, np.int64), *(part for part, _ in parts)])
        left = sum(total for _, total in parts) - int(found.lengths.sum())
        found.dropped = {"unterminated": left} if left else {}
    except (QuireError, OSError, struct.error, ArithmeticError, LookupError, ValueError) as error:
        found.problems.append(f"documents cannot be read again: {error!r}")
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
