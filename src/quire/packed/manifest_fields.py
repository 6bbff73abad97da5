"""What readers take from a manifest, and of which kind it must be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from quire.errors import CorruptFile
from quire.storage import AnyPath

_FORMATS = ("quire.packed", "quire.indexed")
_COUNT, _SIZE, _TOKEN = "an integer >= 0", "an integer >= 1", "an integer >= 0, or null"
_TEXT, _MAPPING, _OPTIONAL = "a text", "a mapping", "a mapping, or null"
_DIGEST = "64 hexadecimal digits"  # names a file of the cache, so it must be no path
_FORMAT = f"one of {', '.join(_FORMATS)}"
_FIELDS = {
    "format.name": _FORMAT,
    "format.quire": _TEXT,
    "rows": _COUNT,
    "ledger": _MAPPING,
    "options.max_length": _SIZE,
    "options.strategy": _TEXT,
    "options.overlong": _TEXT,
    "inputs.*.name": _TEXT,
    "bad_records.count": _COUNT,
    "tokenizer": _OPTIONAL,
    "shards.*.sha256": _DIGEST,
    "shards.*.tokens": _COUNT,
    "shards.*.bytes": _COUNT,
    "shards.*.partition": _COUNT,
}
_PACKED = {"shards.*.rows": _COUNT}
_INDEXED = {
    "documents.opening": _TOKEN,
    "shards.*.documents": _COUNT,
    "plans.*.name": _TEXT,
    "plans.*.sha256": _DIGEST,
    "plans.*.rows": _COUNT,
    "plans.*.ledger": _MAPPING,
    "plans.*.options.max_length": _SIZE,
    "plans.*.options.strategy": _TEXT,
    "plans.*.options.overlong": _TEXT,
}


def require_fields(file: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Raise unless everything that readers take is there, and of the right kind."""
    indexed = manifest["format"].get("name") == _FORMATS[1]
    for name, kind in (_FIELDS | (_INDEXED if indexed else _PACKED)).items():
        for value in _values(manifest, name.split(".")):
            if not _is(kind, value):
                raise CorruptFile(
                    f"{file}: {name} is {_said(value)} but must be {kind}; it is damaged: restore "
                    "it, or pack again"
                )


class _Missing:
    """What stands for a field that is not there."""


def _values(node: object, steps: Sequence[str]) -> Iterator[object]:
    """Every value at the end of the steps; ``*`` goes into each item of a list, which has some."""
    if not steps:
        yield node
    elif steps[0] == "*":
        for item in (isinstance(node, list) and node) or [_Missing]:
            yield from _values(item, steps[1:])
    elif isinstance(node, Mapping) and steps[0] in node:
        yield from _values(node[steps[0]], steps[1:])
    else:
        yield _Missing


def _is(kind: str, value: object) -> bool:
    if kind == _FORMAT:
        return value in _FORMATS
    if kind == _DIGEST:
        return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
    if kind == _TEXT:
        return isinstance(value, str)
    if value is None and kind in (_TOKEN, _OPTIONAL):
        return True
    if kind in (_MAPPING, _OPTIONAL):
        return isinstance(value, Mapping)
    # JSON's true is an int to Python, and a number over 2^63 to no array.
    return type(value) is int and (kind == _SIZE) <= value < 2**63


def _said(value: object) -> str:
    return "missing" if value is _Missing else f"{value!r:.60}"
