"""The manifest of a packed dataset: read, checked, and translated from older versions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from quire.errors import CorruptFile, InvalidOption, StorageError, unknown_name
from quire.formats.record_kinds import WITH_IMAGES
from quire.options.names import option, setting
from quire.seals import (
    FORMAT_VERSION,
    Content,
    Migrations,
    checksum,
    migrated,
    read_version,
    renamed,
)
from quire.storage import AnyPath, RemotePath

MANIFEST = "manifest.json"
PACKED, INDEXED, IN_PLACE = "quire.packed", "quire.indexed", "quire.in_place"
"""The formats: rows in shards; documents in shards and rows in plans; rows in plans, and documents
in files of another system."""
CHECKSUM = "checksum"
MEDIA = ("num_images", "image_grid_thw", "images")
"""Columns of rows of samples with images: how many each sample has, their grids and files."""
_SHARD = re.compile(r"data/shard-\d{5,}-\d{3,}\.parquet")
_PLAN = re.compile(r"plans/[A-Za-z0-9_][A-Za-z0-9._-]*\.arrow")


def _with_tokens_key(manifest: Content) -> Content:
    """Version 1 had no option for the column of tokens, which was always input_ids."""
    options = manifest.get("options")
    if not isinstance(options, dict) or not options.get("pretokenized"):
        return manifest
    return {**manifest, "options": {"tokens_key": "input_ids", **options}}


_RENAMED = {
    "text_key": "text_column",
    "messages_key": "messages_column",
    "tools_key": "tools_column",
    "tokens_key": "tokens_column",
    "min_len": "min_length",
    "max_len": "drop_longer_than",
    "keep_source": "keep_sources",
}
"""Options of version 2 and their names in version 3."""


def _with_renamed_options(manifest: Content) -> Content:
    """The manifest and its plans with the current names of options."""
    content = dict(manifest)
    if isinstance(content.get("options"), Mapping):
        content["options"] = renamed(_RENAMED, content["options"])
    if "plans" in content:
        content["plans"] = [_with_renamed_options(plan) for plan in content["plans"]]
    return content


_MIGRATIONS: Migrations = {1: _with_tokens_key, 2: _with_renamed_options}


def read_manifest(path: AnyPath) -> dict[str, Any]:
    """The manifest of a packed dataset, checked, in the form of the current version."""
    file = path / MANIFEST
    if not file.is_file():
        if isinstance(path, RemotePath):
            path.require_bucket()
        raise InvalidOption(f"{path} has no {MANIFEST}: it is unfinished or not a packed dataset")
    manifest = read_json(file)
    _require_version(file, manifest)
    _require_own_files(path, manifest)
    _require_fields(file, manifest)
    _require_unchanged(file, manifest)
    return _in_current_form(file, manifest)


def read_header(path: AnyPath) -> dict[str, Any]:
    """The header of an unfinished run, in the form of the current version."""
    return _in_current_form(path, read_json(path))


def _in_current_form(file: AnyPath, header: Mapping[str, Any]) -> dict[str, Any]:
    version = _require_version(file, header)
    plain = migrated(dict(header), version, _MIGRATIONS)
    return {**plain, "format": {**header["format"], "version": FORMAT_VERSION}}


def read_json(path: AnyPath) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except StorageError:
        raise
    except (ValueError, OSError, RecursionError) as error:
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    if not isinstance(plain, dict):
        raise CorruptFile(f"{path} holds a {type(plain).__name__}, not an object")
    return plain


def is_indexed(manifest: Mapping[str, Any]) -> bool:
    """Whether plans hold the rows, and shards or other files the documents."""
    return manifest["format"].get("name") in (INDEXED, IN_PLACE)


def is_in_place(manifest: Mapping[str, Any]) -> bool:
    """Whether the documents are in files of another system."""
    return bool(manifest["format"].get("name") == IN_PLACE)


def content_of(entry: Mapping[str, Any]) -> int:
    """The tokens of a manifest, a plan or a shard without BOS.

    Manifests that do not record it, as those of 0.1.0, count EOS as emitted.
    """
    tokens = entry["ledger"]["tokens"]
    return int(entry.get("content", tokens["emitted"] + tokens["overlap"]))


def shard_columns(manifest: Mapping[str, Any]) -> list[str]:
    """The columns of every shard of packed rows, without opening one."""
    options = manifest["options"]
    kind = options.get("record_kind")
    has_answers, images = options.get("messages_column") or kind, kind in WITH_IMAGES
    given = ["labels"] if has_answers else list(manifest.get("columns") or ())
    given = [*given, *(["mm_token_type_ids"] if images else [])]
    others = [name for name in given if name != "input_ids"]
    source = ("document_ids", "document_offsets") if options.get("keep_sources", True) else ()
    return ["input_ids", *others, "document_starts", *source, *(MEDIA if images else ())]


def chosen_plan(
    path: AnyPath, manifest: Mapping[str, Any], name: str | None
) -> dict[str, Any] | None:
    """The entry of a plan, by default the first; None if the shards hold rows."""
    if not is_indexed(manifest):
        if name is not None:
            raise InvalidOption(
                f"{path} holds packed rows and no plans; leave out {setting('plan', name)}, or "
                f"pack with {option('index_only')}"
            )
        return None
    plans = {entry["name"]: entry for entry in manifest["plans"]}
    if name is not None and name not in plans:
        raise unknown_name(f"plan of {path}", name, plans)
    return dict(plans[name] if name is not None else manifest["plans"][0])


def _require_version(file: AnyPath, header: Mapping[str, Any]) -> int:
    about = header.get("format")
    if not isinstance(about, Mapping):
        raise CorruptFile(f"{file} has the format {about!r:.80} but it must be a mapping")
    return read_version(str(file), about.get("version"), CorruptFile)


def _require_own_files(path: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Raise if a shard or plan is not a plain file of the dataset's own folder."""
    for kind, pattern, entries in (
        ("shard", _SHARD, manifest.get("shards")),
        ("plan", _PLAN, manifest.get("plans")),
    ):
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("file") if isinstance(entry, Mapping) else entry
            if not isinstance(name, str) or not pattern.fullmatch(name) or _is_link(path, name):
                raise CorruptFile(
                    f"{path / MANIFEST} names {name!r:.80}, which is not a {kind} of its folder"
                )


def _is_link(path: AnyPath, name: str) -> bool:
    return (path / name).is_symlink() or (path / name).parent.is_symlink()


def _require_unchanged(file: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Raise if the checksum does not match; manifests of early versions have none."""
    content = {name: manifest[name] for name in manifest if name != CHECKSUM}
    if CHECKSUM in manifest and manifest[CHECKSUM] != (found := checksum(content)):
        raise CorruptFile(
            f"{file} has the checksum {manifest[CHECKSUM]!r:.80} but its content has {found!r}: it "
            "was damaged or changed; pack again into a new output"
        )


def _is_integer(value: object, least: int) -> bool:
    # JSON's true is an int in Python, and numbers from 2^63 on do not fit into arrays.
    return type(value) is int and least <= value < 2**63


_COUNT, _SIZE, _TOKEN = "an integer >= 0", "an integer >= 1", "an integer >= 0, or null"
_TEXT, _MAPPING, _OPTIONAL = "a text", "a mapping", "a mapping, or null"
_NOTHING, _TEXT_OR_NULL = "an empty list", "a text, or null"
_DIGEST = "64 hexadecimal digits"  # it names a file in the cache, so it must not be a path
_FORMAT = f"one of {PACKED}, {INDEXED}, {IN_PLACE}"
_KINDS: dict[str, Callable[[Any], bool]] = {
    _COUNT: lambda value: _is_integer(value, 0),
    _SIZE: lambda value: _is_integer(value, 1),
    _TOKEN: lambda value: value is None or _is_integer(value, 0),
    _TEXT: lambda value: isinstance(value, str),
    _MAPPING: lambda value: isinstance(value, Mapping),
    _OPTIONAL: lambda value: value is None or isinstance(value, Mapping),
    _DIGEST: lambda value: isinstance(value, str) and bool(re.fullmatch("[0-9a-f]{64}", value)),
    _NOTHING: lambda value: value == [],
    _TEXT_OR_NULL: lambda value: value is None or isinstance(value, str),
    _FORMAT: lambda value: value in (PACKED, INDEXED, IN_PLACE),
}
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
}
_SHARD_FIELDS = {
    "shards.*.sha256": _DIGEST,
    "shards.*.tokens": _COUNT,
    "shards.*.bytes": _COUNT,
    "shards.*.partition": _COUNT,
}
_PACKED_FIELDS = {**_SHARD_FIELDS, "shards.*.rows": _COUNT}
_PLAN_FIELDS = {
    "documents.opening": _TOKEN,
    "plans.*.name": _TEXT,
    "plans.*.sha256": _DIGEST,
    "plans.*.rows": _COUNT,
    "plans.*.ledger": _MAPPING,
    "plans.*.options.max_length": _SIZE,
    "plans.*.options.strategy": _TEXT,
    "plans.*.options.overlong": _TEXT,
}
_INDEXED_FIELDS = {**_SHARD_FIELDS, "shards.*.documents": _COUNT, **_PLAN_FIELDS}
_IN_PLACE_FIELDS = {
    **_PLAN_FIELDS,
    "shards": _NOTHING,
    "corpus.format": _TEXT,
    "corpus.fingerprint": _DIGEST,
    "corpus.files.*.path": _TEXT,
    "corpus.files.*.relative": _TEXT_OR_NULL,
    "corpus.files.*.bytes": _COUNT,
    "corpus.files.*.fingerprint": _DIGEST,
    "corpus.named.*": _COUNT,
    "corpus.edges": _OPTIONAL,
}
_MISSING = object()


def _require_fields(file: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Raise unless every field that readers use is there and of the right kind."""
    own = _INDEXED_FIELDS if is_indexed(manifest) else _PACKED_FIELDS
    own = _IN_PLACE_FIELDS if is_in_place(manifest) else own
    for name, kind in (_FIELDS | own).items():
        for value in _values(manifest, name.split(".")):
            if not _KINDS[kind](value):
                shown = "missing" if value is _MISSING else f"{value!r:.60}"
                raise CorruptFile(
                    f"{file}: {name} is {shown} but must be {kind}; it is damaged: restore it, or "
                    "pack again"
                )


def _values(node: object, steps: Sequence[str]) -> Iterator[object]:
    """Every value at the end of the path; ``*`` is each item of a list, which must not be empty."""
    if not steps:
        yield node
    elif steps[0] == "*":
        for item in (isinstance(node, list) and node) or [_MISSING]:
            yield from _values(item, steps[1:])
    elif isinstance(node, Mapping) and steps[0] in node:
        yield from _values(node[steps[0]], steps[1:])
    else:
        yield _MISSING
