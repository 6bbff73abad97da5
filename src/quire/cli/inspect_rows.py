"""`quire inspect`: look at packed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from quire.cli.console import has_colors, say
from quire.cli.options import AsJson, CacheDir, PlanName
from quire.errors import InvalidOption
from quire.printable import counted

if TYPE_CHECKING:
    from quire.view import DisplayOptions, Rows


def inspect(
    path: Annotated[
        str,
        typer.Argument(
            help="A folder written by quire pack (or its URI) or save_to_disk; a parquet, arrow or "
            "jsonl file of rows; a stream's YAML; a recipe."
        ),
    ],
    *,
    examples: Annotated[
        int, typer.Option("--examples", "-n", min=0, max=10**12, help="How many rows to show.")
    ] = 5,
    start: Annotated[int, typer.Option(min=0, max=10**12, help="The first row to show.")] = 0,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Decodes tokens: 'byte', or the path of a tokenizer."),
    ] = None,
    plan: PlanName = None,
    cache_dir: CacheDir = None,
    var: Annotated[
        list[str] | None, typer.Option(help="name=value for a recipe; may be repeated.")
    ] = None,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="Show token ids.")] = False,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="Highlight trained tokens, and show where each fragment comes from.",
        ),
    ] = False,
    positions: Annotated[bool, typer.Option("--positions", help="Show position ids.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Show documents in full.")] = False,
    as_json: AsJson = False,
    histogram: Annotated[
        bool, typer.Option("--histogram", help="Show histograms of the lengths instead.")
    ] = False,
) -> None:
    """Show packed rows, every document in its own color.

    --labels highlights the tokens that the model is trained on (in ⟦brackets⟧ where there are no
    colors) and names the record and the token that each fragment starts at. --histogram counts all
    rows, or the first --examples of a stream or a jsonl file.

    Example: quire inspect packed -n 3 --labels
    """
    from quire.storage import as_path
    from quire.view import DisplayOptions, open_rows

    rows = open_rows(
        as_path(path),
        tokenizer,
        plan=plan,
        variables=_variables(var or []),
        cache_dir=cache_dir,
    )
    if rows.num_rows and start >= rows.num_rows:
        raise InvalidOption(
            f"--start is {start:,} but this {rows.kind} has {counted(rows.num_rows, 'row')}, "
            "numbered from 0"
        )
    if histogram:
        _histogram(rows, examples if rows.num_rows is None else None)
        return
    if as_json:
        _write_json(rows, start, examples)
        return
    options = DisplayOptions(
        tokenized=tokenized,
        positions=positions,
        labels=labels,
        marks=not has_colors(),
        most=None if full else 400,
    )
    _show(rows, start, examples, options)


def _variables(given: list[str]) -> dict[str, object]:
    """The given variables; values are read as YAML, so that 8 is a number."""
    import yaml  # type: ignore[import-untyped]

    pairs = [one.partition("=") for one in given]
    for name, sign, _ in pairs:
        if not (name and sign):
            raise InvalidOption(f"--var is {name!r} but must be name=value, such as seed=1")
    try:
        return {name: yaml.safe_load(value) for name, _, value in pairs}
    except yaml.YAMLError as error:
        raise InvalidOption(f"a value of --var is not YAML: {error}") from error


def _show(rows: Rows, start: int, examples: int, options: DisplayOptions) -> None:
    from quire.view import show_row

    shown = without = 0
    for row in rows.views(start, examples):
        shown += 1
        without += not row.has_starts
        for line in show_row(row, rows.decode, options):
            say(line)
    total = "" if rows.num_rows is None else f" of {rows.num_rows:,}"
    noun = "row" if rows.num_rows in (None, 1) and shown == 1 else "rows"
    say(f"{shown:,}{total} {noun} of this {rows.kind}", "dim")
    if rows.decode is None and not options.tokenized and shown:
        say("these are token ids; name the --tokenizer to see text", "dim")
    if without:
        say(
            "the rows have no document_starts, so boundaries are not shown: pack again, or let the "
            "collator find boundaries from tokens (packed_sequences=True)",
            "yellow",
        )


def _write_json(rows: Rows, start: int, examples: int) -> None:
    import json

    from quire.view.plain import plain_row

    shown = [plain_row(row, rows.decode) for row in rows.views(start, examples)]
    typer.echo(json.dumps({"kind": rows.kind, "num_rows": rows.num_rows, "rows": shown}))


def _histogram(rows: Rows, most: int | None) -> None:
    from quire.progress import stage
    from quire.view import histogram_lines

    lengths: list[int] = []
    fragments: list[int] = []
    with stage("reading rows", rows.num_rows or most or 0, "row") as advance:
        for row in rows.views(0, most):
            lengths.append(len(row.input_ids))
            fragments += row.lengths.tolist()
            advance(1)
    for line in histogram_lines(fragments, lengths, rows.max_length):
        say(line)
