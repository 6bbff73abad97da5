"""`quire replan`: another plan of rows for an index-only output."""

from __future__ import annotations

from typing import Annotated

import typer


def replan(
    path: Annotated[
        str, typer.Argument(help="A folder that quire pack --index-only wrote, or its URI.")
    ],
    *,
    max_length: Annotated[int | None, typer.Option(help="Tokens in a row.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="best_fit, first_fit, greedy, wrapped or tight.")
    ] = None,
    overlong: Annotated[
        str | None, typer.Option(help="split, fill, truncate, truncate_left, drop or error.")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens repeated where a document is cut.")
    ] = None,
    min_length: Annotated[int | None, typer.Option(help="Drop rows with fewer tokens.")] = None,
    max_documents_per_row: Annotated[
        int | None, typer.Option(help="The most fragments in a row.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seeds the order of rows.")] = None,
    shuffle: Annotated[bool | None, typer.Option(help="Shuffle rows.")] = None,
    name: Annotated[
        str | None, typer.Option(help="The plan's name; by default STRATEGY-MAX_LENGTH.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Add another plan of rows to a corpus that was packed with --index-only.

    No text is read and no token is moved. Options that are not given stay as the corpus was packed.
    Open the rows with quire.PackedDataset(PATH, plan=NAME). A plan that exists already is left as
    it is, so after an interruption run the same command again.

    Example: quire replan ./packed --max-length 8192 --strategy wrapped
    """
    from quire.cli.pack import print_result, stopping
    from quire.corpus import replan as plan_again
    from quire.storage import as_path

    given = {
        "max_length": max_length,
        "strategy": strategy,
        "overlong": overlong,
        "stride": stride,
        "min_length": min_length,
        "max_documents_per_row": max_documents_per_row,
        "seed": seed,
        "shuffle": shuffle,
    }
    changes = {option: value for option, value in given.items() if value is not None}
    with stopping(as_path(path), "run the same again"):
        result = plan_again(path, name=name, **changes)
    print_result(result, as_json)
