"""The manifest of an output, written last, so an output that has one is complete.

It records no time and no host name, so it is reproducible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

import quire
from quire.corpus.commits import Commit
from quire.corpus.corpus import Corpus
from quire.corpus.inputs import manifest_entry
from quire.corpus.options import CorpusOptions
from quire.documents import Documents
from quire.errors import OutputError
from quire.files import whole_file
from quire.formats.files import InputFile
from quire.formats.fingerprints import FINGERPRINT
from quire.formats.token_columns import TOKENS
from quire.ledger import Ledger
from quire.packed.manifest import CHECKSUM, INDEXED, PACKED, content_of
from quire.seals import FORMAT_VERSION, checksum
from quire.storage import AnyPath

BAD_RECORDS = "bad_records.jsonl"


@dataclass(frozen=True, kw_only=True)
class PackResult:
    """The output of `pack_corpus` or `replan`."""

    path: AnyPath
    manifest: Mapping[str, Any]
    plan: str | None = None
    """The name of the plan, if the output is index-only."""
    was_complete: bool = False
    """Whether the output was complete before, so that nothing was done."""

    @cached_property
    def ledger(self) -> Ledger:
        """What became of every document and token."""
        return Ledger.from_dict(self._rows["ledger"])

    @property
    def num_rows(self) -> int:
        """Rows in all shards."""
        return int(self._rows["rows"])

    @property
    def num_tokens(self) -> int:
        """Tokens in all rows."""
        return int(self._rows["tokens"])

    @property
    def utilization(self) -> float:
        """The part of the row length that content fills, over all rows."""
        space = self.num_rows * int(self._rows["options"]["max_length"])
        return content_of(self._rows) / space if space else 0.0

    @property
    def _rows(self) -> Mapping[str, Any]:
        """The entry about rows: that of the plan, or the manifest itself."""
        if self.plan is None:
            return self.manifest
        return next(entry for entry in self.manifest["plans"] if entry["name"] == self.plan)


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


def require_same(
    out: AnyPath,
    recorded: Mapping[str, Any],
    header: Mapping[str, Any],
    options: type[CorpusOptions] = CorpusOptions,
) -> dict[str, Any]:
    """The recorded header, if it means the same as this one; else raise with the differences.

    A missing option means its default, so an option can be added without refusing older outputs.
    """
    there = {key: recorded.get(key) for key in header}
    here = json.loads(json.dumps(header))
    differing = list(differences(_completed(there, options), _completed(here, options)))
    if differing:
        shown = "; ".join(differing[:10]) + ("; ..." if len(differing) > 10 else "")
        raise OutputError(
            f"{out} was begun with other inputs or options: {shown}; resume with "
            "those, or choose a new output"
        )
    return there


def _completed(header: Mapping[str, Any], options: type[CorpusOptions]) -> dict[str, Any]:
    recorded = header.get("options")
    if not isinstance(recorded, Mapping):
        return dict(header)
    return {**header, "options": options.with_defaults(recorded)}


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
        "content": sum(commit.content for commit in commits),
        "ledger": total.to_dict(),
        "bad_records": dict(bad),
        "shards": [_shard(commit) for commit in commits],
    }


def make_index_manifest(
    header: Mapping[str, Any],
    commits: Sequence[Commit],
    bad: Mapping[str, object],
    empty: Documents,
) -> dict[str, Any]:
    """The manifest of an index-only output without its first plan.

    ``empty`` holds no documents; it has the columns and special tokens of those in the shards.
    """
    at = empty.prefix_at
    return {
        **header,
        "documents": {
            "count": sum(commit.rows for commit in commits),
            "tokens": sum(commit.tokens for commit in commits),
            "opening": None if at is None else int(empty.columns[TOKENS][at].as_py()),
            "end_with_eos": empty.ends_with_eos,
            "has_labels": "labels" in empty.columns,
        },
        "bad_records": dict(bad),
        "shards": [_shard(commit, records="documents") for commit in commits],
    }


def with_first_plan(manifest: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of an index-only output, whose rows are those of its first plan."""
    rows = {name: plan[name] for name in ("rows", "tokens", "content", "ledger")}
    return {**manifest, **rows, "plans": [dict(plan)]}


def _shard(commit: Commit, records: str = "rows") -> dict[str, object]:
    return {
        "file": commit.file,
        "partition": commit.partition,
        "sha256": commit.sha256,
        "bytes": commit.size,
        records: commit.rows,
        "tokens": commit.tokens,
        "content": commit.content,
        "ledger": commit.ledger.to_dict(),
    }


def write_manifest(path: AnyPath, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest with the checksum of its content; returns what was written."""
    content = {name: manifest[name] for name in manifest if name != CHECKSUM}
    sealed = {**content, CHECKSUM: checksum(content)}
    write_json(path, sealed)
    return sealed


def write_json(path: AnyPath, plain: Mapping[str, Any]) -> None:
    """Write a JSON object with sorted keys, as a whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(plain, indent=1, sort_keys=True) + "\n", encoding="utf-8")
