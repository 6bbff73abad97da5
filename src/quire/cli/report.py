"""`quire report`: one page that shows a packed dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from quire.cli.console import require_folder, say
from quire.cli.options import AsJson, CacheDir, PackedPath, PlanName
from quire.printable import counted


def report(
    path: PackedPath,
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The page to write; an existing one is replaced.")
    ] = Path("report.html"),
    tokenizer: Annotated[
        str | None,
        typer.Option(help="The tokenizer that packed it, to show text; not needed for byte."),
    ] = None,
    plan: PlanName = None,
    cache_dir: CacheDir = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="Rows in the picture.")] = 48,
    samples: Annotated[int, typer.Option(min=0, max=100, help="Rows to show as text.")] = 3,
    ranks: Annotated[int, typer.Option(min=1, help="Ranks to balance the cost across.")] = 8,
    rows_per_rank: Annotated[int, typer.Option(min=1, help="Rows per rank and step.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Write an HTML page about a packed dataset.

    It shows the ledger, how full rows are, lengths, trained tokens, attention cost, sources and
    rows. The page loads nothing from a network. It contains the text of a few documents;
    --samples 0 leaves them out. With --json, all figures are printed and no page is written.

    Example: quire report packed -o report.html
    """
    from quire.packed.manifest import read_manifest
    from quire.progress import stage
    from quire.report import ReportOptions, report_figures, write_report
    from quire.storage import as_path

    options = ReportOptions(
        num_rows=rows,
        num_samples=samples,
        num_ranks=ranks,
        rows_per_rank=rows_per_rank,
        cache_dir=cache_dir,
    )
    total = int(read_manifest(as_path(path))["rows"])
    if not as_json:
        require_folder("--out", out)
    if as_json:
        with stage("reading rows", total, "row") as advance:
            figures = report_figures(
                path, tokenizer=tokenizer, options=options, plan=plan, on_shard=advance
            )
        typer.echo(json.dumps(figures))
        return
    with stage("reading rows", total, "row") as advance:
        figures = write_report(
            path, out, tokenizer=tokenizer, options=options, plan=plan, on_shard=advance
        )
    headline = figures["headline"]
    say(
        f"[bold]{counted(headline['rows'], 'row')}[/], "
        f"[bold]{headline['utilization']:.3%}[/] full, "
        f"{counted(headline['documents'], 'document')}, {headline['dropped_documents']:,} dropped",
        markup=True,
    )
    say(f"report: {out}")
