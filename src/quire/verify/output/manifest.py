"""The manifest of a packed dataset, and the files that it lists."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from quire.errors import CorruptFile
from quire.options import EncodeOptions, PackOptions, SourceOptions
from quire.storage import AnyPath, RemotePath, local_copy

_SHARD = re.compile(r"data/shard-\d{5,}-\d{3,}\.parquet")
_PLAN = re.compile(r"plans/[A-Za-z0-9_][A-Za-z0-9._-]*\.arrow")
_VERSIONS = (1, 3)
_FORMATS = ("quire.packed", "quire.indexed", "quire.in_place")
_NEEDED = ("format", "options", "inputs", "rows", "tokens", "ledger", "shards", "bad_records")
_BAD_RECORDS = "bad_records.jsonl"
_RENAMED = {
    "keep_source": "keep_sources",
    "min_len": "min_length",
    "max_len": "drop_longer_than",
    "text_key": "text_column",
    "tokens_key": "tokens_column",
    "messages_key": "messages_column",
    "tools_key": "tools_column",
}
"""Options under the names of earlier versions of quire, and their current names."""


def is_indexed(manifest: Mapping[str, Any]) -> bool:
    """Whether shards or other files hold documents, which plans arrange in rows."""
    return manifest["format"]["name"] in ("quire.indexed", "quire.in_place")


def is_in_place(manifest: Mapping[str, Any]) -> bool:
    """Whether the documents are in files of another system."""
    return bool(manifest["format"]["name"] == "quire.in_place")


def read_manifest(folder: AnyPath) -> dict[str, Any]:
    """The manifest of an output; CorruptFile if it is damaged or lists files outside its folder.

    Options have their current names and defaults; `checksum_problems` says whether the content was
    changed.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        if isinstance(folder, RemotePath):
            folder.require_bucket()
        raise CorruptFile(
            f"{folder} has no manifest.json: it is unfinished, or was not written by quire"
        )
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not JSON: {error}") from error
    missing = [name for name in _NEEDED if not isinstance(manifest, dict) or name not in manifest]
    if missing:
        raise CorruptFile(f"{path} lacks {', '.join(missing)}; it is damaged")
    _require_known_format(path, manifest["format"])
    if not is_in_place(manifest):
        _require_inside(path, manifest, "shard", _SHARD)
    elif manifest["shards"] != [] or not isinstance(manifest.get("corpus"), dict):
        raise CorruptFile(f"{path} has shards, or no corpus, which its format rules out")
    plans = []
    if is_indexed(manifest):
        if "documents" not in manifest:
            raise CorruptFile(f"{path} lacks documents; it is damaged")
        _require_inside(path, manifest, "plan", _PLAN)
        plans = [
            {**plan, "options": _completed(plan["options"], PackOptions)}
            for plan in manifest["plans"]
        ]
    problems = list(_checksum_problems(manifest))
    options = _completed(manifest["options"], SourceOptions, EncodeOptions, PackOptions)
    return {**manifest, "options": options, "plans": plans, "checksum_problems": problems}


def unlisted_files(folder: AnyPath, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Problems with files that do not belong there: left over, or added by someone else."""
    listed = {"manifest.json", *(entry["file"] for entry in manifest["shards"] + manifest["plans"])}
    if manifest["bad_records"].get("count"):
        listed.add(_BAD_RECORDS)
    inside = [path for name in ("data", "plans") for path in _sorted_files(folder / name)]
    for path in [*_sorted_files(folder), *inside]:
        name = path.relative_to(folder).as_posix()  # type: ignore[arg-type] # of the same kind
        is_ours = path in inside or path.suffix == ".parquet" or name.endswith(".tmp")
        if name == ".quire":
            yield (
                ".quire exists: a writer is still running or was stopped; run its command again "
                "(`quire pack … --resume`, `quire replan …`) to finish and remove it"
            )
        elif is_ours and name not in listed:
            yield f"{name} exists but is not listed in the manifest"


def bad_record_problems(folder: AnyPath, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Problems with the list of bad records: other bytes, or other counts than the ledger's."""
    listed = manifest["bad_records"]
    dropped = manifest["ledger"]["documents"]["dropped"].get("bad_record", 0)
    if listed.get("count") != dropped:
        yield (
            f"the manifest lists {listed.get('count')} as the number of bad records, but the "
            f"ledger counts {dropped}"
        )
    if not listed.get("count"):
        return
    path = folder / _BAD_RECORDS
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != listed.get("sha256"):
        yield f"{_BAD_RECORDS} is missing, or its bytes have changed since it was written"
    elif len(data.splitlines()) != listed["count"]:
        yield f"{_BAD_RECORDS} has {len(data.splitlines())} lines, not {listed['count']}"


def read_bad_records(folder: AnyPath, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records that the packer left out, each with its file and record number."""
    if not manifest["bad_records"]["count"]:
        return []
    lines = (folder / _BAD_RECORDS).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@contextmanager
def verified_file(folder: AnyPath, entry: Mapping[str, Any]) -> Iterator[Path]:
    """A local path of a listed file; CorruptFile unless it has the size and SHA-256 listed."""
    name = entry["file"]
    if not (folder / name).is_file():
        raise CorruptFile(f"{name} is missing")
    with local_copy(folder / name) as path:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != entry.get("sha256"):
            raise CorruptFile(f"{name} has changed since it was written: its SHA-256 differs")
        if (size := path.stat().st_size) != entry.get("bytes"):
            raise CorruptFile(f"{name} has {size} bytes, not {entry.get('bytes')}")
        yield path


def _completed(options: Mapping[str, Any], *groups: type) -> dict[str, Any]:
    """Options under their current names; one that is missing has the default of its group."""
    known = {field.name: field.default for group in groups for field in fields(group)}
    defaults = {name: value for name, value in known.items() if value is not MISSING}
    return {**defaults, **{_RENAMED.get(name, name): value for name, value in options.items()}}


def _require_known_format(path: AnyPath, given: object) -> None:
    known = isinstance(given, dict) and given.get("name") in _FORMATS
    version = given.get("version") if isinstance(given, dict) else None
    if not known or type(version) is not int or version not in _VERSIONS:
        raise CorruptFile(
            f"{path} has format {given!r:.80}, but this version of quire reads the versions "
            f"{_VERSIONS}; upgrade quire"
        )


def _require_inside(
    path: AnyPath, manifest: Mapping[str, Any], kind: str, pattern: re.Pattern[str]
) -> None:
    entries = manifest.get(f"{kind}s")
    if not isinstance(entries, list) or not entries:
        raise CorruptFile(f"{path}: {kind}s is not a list with entries; it is damaged")
    for entry in entries:
        name = entry.get("file") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not pattern.fullmatch(name):
            raise CorruptFile(f"{path} lists {name!r:.80}, which is not the name of a {kind}")
        file = path.parent / name
        if file.is_symlink() or file.parent.is_symlink():
            raise CorruptFile(f"{file} is a link; a {kind} must be a file in its own folder")


def _checksum_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    """A problem if the content has changed; manifests of early versions have no checksum."""
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    if manifest.get("checksum", found) != found:
        yield (
            f"manifest.json: its checksum is {manifest['checksum']!r:.80} but its content has "
            f"{found!r}: the manifest was damaged or edited"
        )


def _sorted_files(folder: AnyPath) -> list[AnyPath]:
    return sorted(folder.glob("*"), key=str)
