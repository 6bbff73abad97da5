"""Run an export: part by part, with the ledger in a sidecar that is written last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, cast

import quire
from quire.corpus.lock import writer_lock
from quire.corpus.manifest import differences, write_json
from quire.corpus.output import RUN, WORK, clear_work, sweep, write_errors
from quire.errors import InvalidOption, OutputError, unknown_name
from quire.files import make_folder, sha256_of
from quire.ledger import Ledger
from quire.options import Size, require_flag, validate
from quire.options.names import option
from quire.packed.dataset import PackedDataset
from quire.packed.exports.parts import TOKENS, Exporter, Part
from quire.packed.manifest import read_json
from quire.packed.rows import SOURCE, STARTS
from quire.storage import AnyPath, Named, RemotePath, as_path

SIDECAR = "quire.json"
EXPORTS = ("megatron", "nemo", "mds", "trl", "arrow", "olmo")
"""The formats; each is a module of this package."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportOptions:
    """How rows become files."""

    columns: tuple[str, ...] | None = None
    """Columns with a value per token. None: all of them."""
    unit: str | None = None
    """What is a sequence in Megatron's index: fragments, with a document for each row; or rows,
    with the boundaries in a parquet file beside them. None: fragments."""
    dtype: str | None = None
    """The type of token ids in the files of megatron and olmo. None: int32; uint32 for olmo."""
    tokens_per_part: Size | None = None
    """Tokens in the files of one part, 64M for example. None: 64M; 1G for megatron and olmo."""

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """What was written."""

    path: AnyPath
    to: str
    num_rows: int
    num_tokens: int
    files: list[str]
    ledger: Ledger
    """That of the packed dataset."""
    was_complete: bool = False


def export(
    path: Named,
    out: Named,
    to: str,
    *,
    plan: str | None = None,
    resume: bool = False,
    options: ExportOptions | None = None,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> ExportResult:
    """Write the rows of a packed dataset as another trainer reads them.

    ``to`` is one of `EXPORTS`. ``plan`` names the plan of an index-only output. With ``resume``, an
    interrupted export is continued, and a finished one is left as it is. ``out/quire.json`` has the
    ledger, the origin and the hash of every file.
    """
    require_flag("resume", resume)
    exporter, given = _exporter(to), options or ExportOptions()
    settings = _settings(to, exporter, given)
    dataset = _opened(path, plan, to, exporter, given)
    folder = as_path(out)
    header = {
        "format": {"name": "quire.export", "version": 1, "quire": quire.__version__},
        "to": to,
        "options": settings,
        "columns": dataset.columns,
        "source": {"fingerprint": dataset.fingerprint, "plan": dataset.plan},
    }
    with write_errors(folder):
        there = _recorded(folder, resume)
        _require_same(folder, there, header)
        if there and (folder / SIDECAR).is_file():
            return _result(folder, there, was_complete=True)
        if not isinstance(folder, RemotePath):
            make_folder(folder)
        with writer_lock(folder / WORK, folder):
            sweep(folder)
            write_json(folder / WORK / RUN, header)
            return _write(dataset, folder, exporter, header, on_rows)


def _write(
    dataset: PackedDataset,
    folder: AnyPath,
    exporter: Exporter,
    header: dict[str, Any],
    on_rows: Callable[[int], None],
) -> ExportResult:
    parts = _parts(dataset, folder, exporter, header["options"])
    names: list[str] = []
    for part in parts:
        own = exporter.names(part)
        if not (folder / own[-1]).is_file():
            exporter.write(part)
        on_rows(len(part.rows))
        names += own
    names += exporter.finish(parts)
    content = {
        **header,
        "rows": len(dataset),
        "tokens": _num_tokens(dataset),
        "ledger": dataset.ledger.to_dict(),
        "files": [
            {
                "file": name,
                "bytes": (folder / name).stat().st_size,
                "sha256": sha256_of(folder / name),
            }
            for name in names
        ],
    }
    write_json(folder / SIDECAR, content)
    clear_work(folder / WORK)
    return _result(folder, content)


def _num_tokens(dataset: PackedDataset) -> int:
    entries = {entry["name"]: entry for entry in dataset.manifest.get("plans", [])}
    entry = dataset.manifest if dataset.plan is None else entries[dataset.plan]
    return int(entry["tokens"])


def _parts(
    dataset: PackedDataset, folder: AnyPath, exporter: Exporter, settings: Mapping[str, Any]
) -> list[Part]:
    tokens = settings["tokens_per_part"] or exporter.TOKENS_PER_PART
    rows = max(1, int(tokens) // dataset.max_length)
    count = max(1, -(-len(dataset) // rows))
    return [
        Part(
            dataset=dataset,
            folder=folder,
            number=number,
            rows=range(number * rows, min((number + 1) * rows, len(dataset))),
            num_parts=count,
            settings=settings,
        )
        for number in range(count)
    ]


def _exporter(to: str) -> Exporter:
    if to not in EXPORTS:
        raise unknown_name("format to export to", to, EXPORTS)
    return cast("Exporter", import_module(f"quire.packed.exports.{to}"))


def _settings(to: str, exporter: Exporter, given: ExportOptions) -> dict[str, Any]:
    """The options with the defaults of the format; those of other formats must not be given."""
    plain = asdict(given)
    for name in ("unit", "dtype"):
        allowed = exporter.OPTIONS.get(name, ())
        if plain[name] is not None and plain[name] not in allowed:
            known = f"must be one of {', '.join(allowed)}" if allowed else "is not an option"
            raise InvalidOption(f"{name}={plain[name]!r} {known} of an export to {to}")
        plain[name] = plain[name] or (allowed[0] if allowed else None)
    return {**plain, "columns": None if given.columns is None else list(given.columns)}


def _opened(
    path: Named, plan: str | None, to: str, exporter: Exporter, given: ExportOptions
) -> PackedDataset:
    known = PackedDataset(path, plan=plan).columns
    wanted = known if given.columns is None else [TOKENS, *given.columns]
    per_token = [name for name in dict.fromkeys(wanted) if name not in (STARTS, *SOURCE)]
    if exporter.TOKENS_ONLY and len(per_token) > 1:
        raise InvalidOption(
            f"rows have {', '.join(per_token[1:])}, which the files of {to} cannot hold; leave "
            "them out with columns=['input_ids'] (on the command line --column input_ids)"
        )
    return PackedDataset(path, plan=plan, columns=[*per_token, STARTS])


def _recorded(folder: AnyPath, resume: bool) -> dict[str, Any]:
    """The header of the export that is there; empty if there is none."""
    is_new = not folder.exists() or not any(folder.iterdir())
    if is_new:
        return {}
    if not resume:
        raise OutputError(
            f"{folder} is not empty; continue an unfinished export with {option('resume')}, or "
            "choose a new output"
        )
    for file in (folder / SIDECAR, folder / WORK / RUN):
        if file.is_file():
            return read_json(file)
    raise OutputError(f"{folder} holds files but no export of quire to resume; choose another")


def _require_same(folder: AnyPath, there: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    differing = list(differences({key: there.get(key) for key in header}, dict(header)))
    if there and differing:
        raise OutputError(
            f"{folder} was begun with another dataset or options: {'; '.join(differing[:10])}; "
            "resume with those, or choose a new output"
        )


def _result(
    folder: AnyPath, content: Mapping[str, Any], *, was_complete: bool = False
) -> ExportResult:
    return ExportResult(
        path=folder,
        to=content["to"],
        num_rows=content["rows"],
        num_tokens=content["tokens"],
        files=[entry["file"] for entry in content["files"]],
        ledger=Ledger.from_dict(content["ledger"]),
        was_complete=was_complete,
    )
