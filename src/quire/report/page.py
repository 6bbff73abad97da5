"""The page: figures, charts and style in one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidOption, OutputError
from quire.files import leftovers_swept, whole_file
from quire.packed.manifest import chosen_plan, content_of, read_manifest
from quire.report.figures import figures_of
from quire.report.fragments import packed_fragments, planned_fragments
from quire.report.options import ReportOptions
from quire.report.vision import vision_figures
from quire.storage import Named, RemotePath, as_path, local_folder
from quire.text import TokenizerLike

if TYPE_CHECKING:
    from quire.vision import PackedVLDataset


def write_report(
    path: Named | PackedVLDataset,
    out: str | os.PathLike[str],
    *,
    tokenizer: TokenizerLike | None = None,
    options: ReportOptions | None = None,
    plan: str | None = None,
    on_shard: Callable[[int], None] = lambda rows: None,
) -> dict[str, Any]:
    """Write a page about the packed dataset at ``path`` to ``out``, and return its figures.

    A tokenizer decodes the text of the first rows; a dataset of bytes needs none. ``plan`` names
    the plan of an index-only output to show, by default the one it was packed with. A dataset in an
    object store is copied to the local disk first. In place of a path, pass a `PackedVLDataset`
    with known lengths for a page about the packs of its epoch; no sample is read.
    """
    figures = report_figures(
        path, tokenizer=tokenizer, options=options, plan=plan, on_shard=on_shard
    )
    file = Path(out)
    try:
        with leftovers_swept(file), whole_file(file) as temporary:
            temporary.write_text(page_of(figures), encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"{file} cannot be written: {error.strerror}; name another file with --out"
        ) from error
    return figures


def report_figures(
    path: Named | PackedVLDataset,
    *,
    tokenizer: TokenizerLike | None = None,
    options: ReportOptions | None = None,
    plan: str | None = None,
    on_shard: Callable[[int], None] = lambda rows: None,
) -> dict[str, Any]:
    """The figures that `write_report` shows, as plain data."""
    if not isinstance(path, str | os.PathLike | RemotePath):
        if tokenizer is not None or plan is not None:
            raise InvalidOption("a report of packs of samples takes no tokenizer and no plan")
        return vision_figures(path, options or ReportOptions())
    given = as_path(path)
    read_manifest(given)  # fails for anything but a dataset, before it is copied
    with local_folder(given) as folder:
        return _figures(folder, tokenizer, options or ReportOptions(), plan, on_shard)


def _figures(
    folder: Path,
    tokenizer: TokenizerLike | None,
    options: ReportOptions,
    plan: str | None,
    on_shard: Callable[[int], None],
) -> dict[str, Any]:
    manifest = read_manifest(folder)
    entry = chosen_plan(folder, manifest, plan)
    if entry is None:
        fragments = packed_fragments(folder, manifest, on_shard)
    else:
        fragments = planned_fragments(folder, manifest, entry)
        manifest |= {"ledger": entry["ledger"], "rows": entry["rows"]}
        manifest["content"] = content_of(entry)
        manifest["options"] = {**manifest["options"], **entry["options"], "plan": entry["name"]}
    return figures_of(folder, manifest, fragments, options, tokenizer)


def page_of(figures: dict[str, Any]) -> str:
    """The page as one string."""
    library, script = _asset("vendor/echarts.min.js"), _asset("charts.js")
    # The browser runs these two scripts and nothing else, loads nothing, and sends nothing,
    # whatever a file's name or a document's text contains.
    policy = (
        f"default-src 'none'; script-src {_digest(library)} {_digest(script)}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "STYLE": _asset("style.css"),
        **{name.upper(): word for name, word in figures["words"].items()},
        "FIGURES": _embedded(figures),
        "LIBRARY": library,
        "SCRIPT": script,
    }
    return "".join(parts.get(piece, piece) for piece in _asset("page.html").split("@@"))


def _asset(name: str) -> str:
    return resources.files("quire.report").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _embedded(figures: dict[str, Any]) -> str:
    """JSON for a script element: no text in it can close the element."""
    text = json.dumps(figures, allow_nan=False)  # only ASCII, so U+2028 is escaped too
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
