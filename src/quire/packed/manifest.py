"""The manifest as a reader needs it: whole, of a known version, naming files of its folder only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from quire.errors import CorruptFile, InvalidOption, unknown_name
from quire.packed.manifest_fields import require_fields
from quire.seals import FORMAT_VERSION, Content, Migrations, checksum, migrated, read_version
from quire.storage import AnyPath, RemotePath

INDEXED = "quire.indexed"
CHECKSUM = "checksum"
_SHARD = re.compile(r"data/shard-\d{5,}-\d{3,}\.parquet")
_PLAN = re.compile(r"plans/[A-Za-z0-9_][A-Za-z0-9._-]*\.arrow")


def _with_tokens_key(manifest: Content) -> Content:
    """Before the column of the tokens could be named, it was input_ids."""
    options = manifest.get("options")
    if not isinstance(options, dict) or not options.get("pretokenized"):
        return manifest
    return {**manifest, "options": {"tokens_key": "input_ids", **options}}


_MIGRATIONS: Migrations = {1: _with_tokens_key}


def read_manifest(path: AnyPath) -> dict[str, Any]:
    """The manifest of an output, if it is one, and names nothing outside of its folder."""
    file = path / "manifest.json"
    if not file.is_file():
        if isinstance(path, RemotePath):
            path.require_bucket()
        raise InvalidOption(f"{path} has no manifest.json: it is unfinished, or no packed dataset")
    try:
        manifest = json.loads(file.read_bytes())
        version = manifest["format"]["version"]
        shards = [shard["file"] for shard in manifest["shards"]]
        plans = [plan["file"] for plan in manifest.get("plans", [])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(f"{file} is no manifest: {type(error).__name__} {error}") from error
    read_version(str(file), version, CorruptFile)
    for kind, pattern, names in (("shard", _SHARD, shards), ("plan", _PLAN, plans)):
        for name in names:
            if not isinstance(name, str) or not pattern.fullmatch(name) or _is_link(path, name):
                raise CorruptFile(f"{file} names {name!r:.80}, which is no {kind} of its folder")
    require_fields(file, manifest)
    require_unchanged(file, manifest)
    return in_todays_form(file, manifest)


def in_todays_form(file: AnyPath, header: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest, or the header of an unfinished run, of any version as this one writes it."""
    said = header.get("format")
    if not isinstance(said, Mapping):
        raise CorruptFile(f"{file} has the format {said!r:.80} but it must be a mapping")
    version = read_version(str(file), said.get("version"), CorruptFile)
    plain = migrated(dict(header), version, _MIGRATIONS)
    return {**plain, "format": {**said, "version": FORMAT_VERSION}}


def require_unchanged(path: AnyPath, manifest: Mapping[str, Any]) -> None:
    """Raise if the manifest says anything else than when it was written.

    One without a checksum is of an earlier quire, and is taken as it is.
    """
    said = {name: manifest[name] for name in manifest if name != CHECKSUM}
    if CHECKSUM in manifest and manifest[CHECKSUM] != (found := checksum(said)):
        raise CorruptFile(
            f"{path} has the checksum {manifest[CHECKSUM]!r:.80} but its content has {found!r}: it "
            "was damaged or changed; pack again into a new output"
        )


def _is_link(path: AnyPath, name: str) -> bool:
    return (path / name).is_symlink() or (path / name).parent.is_symlink()


def is_indexed(manifest: Mapping[str, Any]) -> bool:
    """Whether documents stand in the shards, and rows in plans."""
    return bool(manifest["format"].get("name") == INDEXED)


def shard_columns(manifest: Mapping[str, Any]) -> list[str]:
    """The columns of every shard of packed rows, so that none need be opened to know them."""
    options = manifest["options"]
    given = ["labels"] if options.get("messages_key") else list(manifest.get("columns") or ())
    others = [name for name in given if name != "input_ids"]
    source = ("document_ids", "document_offsets") if options.get("keep_source", True) else ()
    return ["input_ids", *others, "document_starts", *source]


def chosen_plan(
    path: AnyPath, manifest: Mapping[str, Any], name: str | None
) -> dict[str, Any] | None:
    """The entry of a plan, by default of the first; None where rows stand in the shards."""
    if not is_indexed(manifest):
        if name is not None:
            raise InvalidOption(
                f"{path} holds packed rows and no plans; leave plan={name!r} out, or pack with "
                "index_only"
            )
        return None
    plans = {entry["name"]: entry for entry in manifest["plans"]}
    if name is not None and name not in plans:
        raise unknown_name(f"plan of {path}", name, plans)
    return dict(plans[name] if name is not None else manifest["plans"][0])
