"""The manifest of an output, written last, so an output that has one is complete.

It records no time and no host name, so it is reproducible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

import quire
from quire.corpus.commits import Commit
from quire.corpus.corpus import Corpus
from quire.corpus.inputs import FINGERPRINT, manifest_entry
from quire.errors import OutputError
from quire.files import whole_file
from quire.formats.files import InputFile
from quire.ledger import Ledger
from quire.packed.manifest import INDEXED, PACKED, in_current_form, read_json
from quire.seals import FORMAT_VERSION
from quire.storage import AnyPath

BAD_RECORDS = "bad_records.jsonl"


def make_header(corpus: Corpus, tokenizer: object) -> dict[str, Any]:
    """Everything that determines the bytes of the output."""
    return {
        "format": {
            "name": INDEXED if corpus.options.index_only else PACKED,
            "version": FORMAT_VERSION,
            "quire": quire.__version__,
            "pyarrow": pa.__version__,
        },
        "options": corpus.options.to_dict(),
        "tokenizer": tokenizer,
        "columns": dict(corpus.columns),
        "fingerprint": FINGERPRINT,
        "inputs": [manifest_entry(file) for file in corpus.files],
    }


def require_same(out: AnyPath, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise with the fields that differ, unless both headers are equal."""
    differing = list(differences(there, json.loads(json.dumps(here))))
    if differing:
        shown = "; ".join(differing[:10]) + ("; ..." if len(differing) > 10 else "")
        raise OutputError(
            f"{out} was begun with other inputs or options: {shown}; resume with "
            "those, or choose a new output"
        )


def differences(there: Any, here: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    """A description of every field in which two JSON values differ."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted(there.keys() | here.keys()):
            yield from differences(there.get(key), here.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        for number, (old, new) in enumerate(zip(there, here, strict=True)):
            yield from differences(old, new, f"{path}[{number}]")
    elif isinstance(there, list) and isinstance(here, list):
        yield f"{path} has {len(there)} entries there and {len(here)} here"
    elif there != here:
        yield f"{path} is {there!r:.80} there and {here!r:.80} here"


def write_bad_records(
    out: AnyPath, commits: Sequence[Commit], files: Sequence[InputFile]
) -> dict[str, object]:
    """Write a list of all bad records, if there are any; returns the manifest's entry."""
    lines = [
        json.dumps(
            {
                "file": files[bad.file].name,
                "file_number": bad.file,
                "record": bad.record,
                "byte_offset": bad.offset,
                "reason": bad.reason,
            }
        )
        for commit in commits
        for bad in sorted(commit.bad, key=lambda bad: (bad.file, bad.record))
    ]
    if not lines:
        return {"count": 0}
    data = "".join(f"{line}\n" for line in lines).encode()
    with whole_file(out / BAD_RECORDS) as temporary:
        temporary.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    return {"count": len(lines), "file": BAD_RECORDS, "sha256": digest}


def make_manifest(
    header: Mapping[str, Any], commits: Sequence[Commit], bad: Mapping[str, object]
) -> dict[str, Any]:
    """The manifest of an output of rows: the header, the totals and every shard."""
    total = sum((commit.ledger for commit in commits), Ledger()).check()
    return {
        **header,
        "rows": sum(commit.rows for commit in commits),
        "tokens": sum(commit.tokens for commit in commits),
        "ledger": total.to_dict(),
        "bad_records": dict(bad),
        "shards": [_shard(commit) for commit in commits],
    }


def make_index_manifest(
    header: Mapping[str, Any],
    commits: Sequence[Commit],
    bad: Mapping[str, object],
    documents: Mapping[str, object],
    plan: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest of an index-only output: the header, every shard, and the first plan."""
    return {
        **header,
        **{name: plan[name] for name in ("rows", "tokens", "ledger")},
        "documents": dict(documents),
        "plans": [dict(plan)],
        "bad_records": dict(bad),
        "shards": [_shard(commit, records="documents") for commit in commits],
    }


def _shard(commit: Commit, records: str = "rows") -> dict[str, object]:
    return {
        "file": commit.file,
        "partition": commit.partition,
        "sha256": commit.sha256,
        "bytes": commit.size,
        records: commit.rows,
        "tokens": commit.tokens,
        "ledger": commit.ledger.to_dict(),
    }


def read_header(path: AnyPath) -> dict[str, Any]:
    """The header of a run or an output, in the form of the current version."""
    return in_current_form(path, read_json(path))
