"""`quire export`: packed rows in the files that other trainers read."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from quire.cli.console import say
from quire.cli.options import AsJson, PackedPath, PlanName, options_of
from quire.cli.pack import stopping
from quire.packed.exports import EXPORTS, ExportOptions
from quire.printable import counted


@options_of(ExportOptions)
def export(
    path: PackedPath,
    *,
    to: Annotated[str, typer.Option(help=f"The format: {', '.join(EXPORTS)}.")],
    out: Annotated[str, typer.Option(help="The folder to write, or its URI.")],
    plan: PlanName = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an export; start one if there is none.")
    ] = False,
    as_json: AsJson = False,
    options: dict[str, Any],
) -> None:
    """Write packed rows as another trainer reads them.

    megatron: .bin and .idx; nemo: packed parquet (*.idx.parquet); mds: MosaicML shards; trl:
    parquet with seq_lengths; arrow: a folder for datasets.load_from_disk; olmo: .npy with .csv.gz.
    OUT/quire.json has the ledger and the hash of every file. quire pack --index-only reads the
    files of each format again.

    Exit code 0: the export is complete. 2: an error. 130, 143: interrupted; --resume continues.

    Example: quire export packed --to megatron --out megatron/
    """
    from quire.packed.exports import export as run
    from quire.packed.manifest import read_manifest
    from quire.progress import stage
    from quire.storage import as_path

    total = int(read_manifest(as_path(path))["rows"])
    with stopping(as_path(out)), stage("writing rows", total, "row") as advance:
        result = run(
            path,
            out,
            to,
            plan=plan,
            resume=resume,
            options=ExportOptions(**options),
            on_rows=advance,
        )
    if as_json:
        summary = {
            "path": str(result.path),
            "to": result.to,
            "rows": result.num_rows,
            "tokens": result.num_tokens,
            "files": result.files,
            "was_complete": result.was_complete,
            "ledger": result.ledger.to_dict(),
        }
        typer.echo(json.dumps(summary, sort_keys=True))
        return
    state = "was already complete" if result.was_complete else "is complete"
    say(f"{str(result.path)!r} {state}")
    say(
        f"  {counted(result.num_rows, 'row')} with {counted(result.num_tokens, 'token')} in "
        f"{counted(len(result.files), 'file')}"
    )
    for line in result.ledger.drop_lines():
        say(f"  {line}")
