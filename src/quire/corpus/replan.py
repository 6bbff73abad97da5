"""`replan`: a further plan for an index-only output, in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from quire.corpus.index import plan_name, write_plan
from quire.corpus.lock import writer_lock
from quire.corpus.manifest import differences, write_manifest
from quire.corpus.options import ROW_OPTIONS, CorpusOptions
from quire.corpus.output import WORK, sweep, sweep_plans, write_errors
from quire.corpus.pack import PackResult
from quire.errors import InvalidOption, OutputError, unknown_name
from quire.packed.manifest import MANIFEST, is_indexed, read_manifest
from quire.storage import AnyPath, Named, as_path


def replan(
    path: Named,
    *,
    name: str | None = None,
    **changes: Any,  # noqa: ANN401 - declared once, at CorpusOptions
) -> PackResult:
    """Make another plan for an index-only output, without reading text or moving tokens.

    ``changes`` are those options of `pack_corpus` that shape rows (``max_length``, ``strategy``,
    ``overlong``, ``stride``, ``min_length``, ``min_fragment``, ``max_documents_per_row``,
    ``shuffle``, ``seed``); the others keep the values that the corpus was packed with. ``name``
    defaults to strategy and length; ``PackedDataset(path, plan=name)`` opens it. A plan that
    exists already is left as it is. Memory: the lengths and the plan.

    >>> import tempfile, quire
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "abc"}\\n{"text": "de"}\\n')
    >>> out = folder / "packed"
    >>> packed = quire.pack_corpus([folder / "a.jsonl"], out, "byte", max_length=8, index_only=True)
    >>> again = replan(out, max_length=16)
    >>> packed.plan, packed.num_rows, again.plan, again.num_rows
    ('best_fit-8', 2, 'best_fit-16', 1)
    """
    out = as_path(path)
    _indexed_manifest(out)  # before a lock is created in a folder that is not an output
    with write_errors(out), writer_lock(out / WORK, out):
        sweep(out)
        manifest = _indexed_manifest(out)
        sweep_plans(out, manifest)
        options = _changed(manifest["options"], changes)
        chosen = plan_name(options, name)
        there = [entry for entry in manifest["plans"] if entry["name"] == chosen]
        if there:
            _require_same_rows(out, there[0], options)
            return PackResult(path=out, manifest=manifest, plan=chosen, was_complete=True)
        entry = write_plan(out, chosen, manifest, options)
        manifest["plans"].append(entry)
        manifest = write_manifest(out / MANIFEST, manifest)
    return PackResult(path=out, manifest=manifest, plan=chosen)


def _indexed_manifest(out: AnyPath) -> dict[str, Any]:
    manifest = read_manifest(out)
    if not is_indexed(manifest):
        raise InvalidOption(
            f"{out} holds packed rows, not documents; only outputs packed with index_only can be "
            "planned again"
        )
    return manifest


def _changed(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> CorpusOptions:
    for name in changes:
        if name not in ROW_OPTIONS:
            raise unknown_name("option of a plan", name, ROW_OPTIONS)
    known = {field.name for field in fields(CorpusOptions)}
    plain = {name: value for name, value in stored.items() if name in known}
    return CorpusOptions(**{**plain, **changes})


def _require_same_rows(out: AnyPath, there: Mapping[str, Any], options: CorpusOptions) -> None:
    known, given = map(options.with_defaults, (there["options"], options.row_options()))
    differing = list(differences(known, given))
    if differing:
        raise OutputError(
            f"{out} already has another plan {there['name']!r}: {'; '.join(differing)}; give this "
            "one another name"
        )
