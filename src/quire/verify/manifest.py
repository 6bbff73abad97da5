"""The manifest as the check reads it: of a known format, naming files of its folder alone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from quire.errors import CorruptFile
from quire.storage import AnyPath, RemotePath

_SHARD = re.compile(r"data/shard-\d{5,}-\d{3,}\.parquet")
_PLAN = re.compile(r"plans/[A-Za-z0-9_][A-Za-z0-9._-]*\.arrow")
_VERSIONS = (1, 3)
_FORMATS = ("quire.packed", "quire.indexed")
_NEEDED = ("format", "options", "inputs", "rows", "tokens", "ledger", "shards", "bad_records")


def is_indexed(manifest: Mapping[str, Any]) -> bool:
    """Whether documents stand in the shards, and rows in plans."""
    return bool(manifest["format"]["name"] == "quire.indexed")


def read_manifest(folder: AnyPath) -> dict[str, Any]:
    """The manifest, if it is one, and names nothing outside of its folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        if isinstance(folder, RemotePath):
            folder.require_bucket()
        raise CorruptFile(f"{folder} has no manifest.json: it is unfinished, or no output of quire")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not JSON: {error}") from error
    missing = [name for name in _NEEDED if not isinstance(manifest, dict) or name not in manifest]
    if missing:
        raise CorruptFile(f"{path} lacks {', '.join(missing)}; it is damaged")
    said = manifest["format"]
    version = said.get("version") if isinstance(said, dict) else None
    known = version in _VERSIONS and type(version) is int and said.get("name") in _FORMATS
    if not known:
        raise CorruptFile(
            f"{path} has format {said!r:.80}, but this quire reads versions {_VERSIONS}; upgrade"
        )
    _require_inside(path, manifest, "shard", _SHARD)
    if is_indexed(manifest):
        if "documents" not in manifest:
            raise CorruptFile(f"{path} lacks documents; it is damaged")
        _require_inside(path, manifest, "plan", _PLAN)
    return dict(manifest)


def changed_since(manifest: Mapping[str, Any]) -> list[str]:
    """A problem, if the manifest says anything else than when it was written.

    One without a checksum is of an earlier quire: nothing can be told.
    """
    said = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if manifest.get("checksum", found) == found:
        return []
    return [
        f"manifest.json: its checksum is {manifest['checksum']!r:.80} but its content has "
        f"{found!r}: what it says was damaged or changed"
    ]


def _require_inside(
    path: AnyPath, manifest: Mapping[str, Any], kind: str, pattern: re.Pattern[str]
) -> None:
    entries = manifest.get(f"{kind}s")
    if not isinstance(entries, list) or not entries:
        raise CorruptFile(f"{path}: {kind}s is no list; it is damaged")
    for entry in entries:
        name = entry.get("file") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not pattern.fullmatch(name):
            raise CorruptFile(f"{path} names a {kind} {name!r:.80}, which is no name of a {kind}")
        file = path.parent / name
        if file.is_symlink() or file.parent.is_symlink():
            raise CorruptFile(f"{file} is a link; a {kind} is a file of its folder")
