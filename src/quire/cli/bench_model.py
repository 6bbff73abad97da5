"""`quire bench-model`: tokens per second of a model, padded and packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from quire.cli.console import say
from quire.cli.options import AsJson
from quire.errors import missing_dependency
from quire.progress import stage

if TYPE_CHECKING:
    from quire.speed import Measured


def bench_model(
    path: Annotated[Path, typer.Argument(help="A folder that save_pretrained wrote.")],
    *,
    data: Annotated[
        str | None,
        typer.Option(
            help="A folder written by quire pack, whose documents are used.",
            show_default="random documents as long as instructions",
        ),
    ] = None,
    documents: Annotated[int, typer.Option(min=2, help="How many documents.")] = 128,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="The most tokens in a row; longer documents are cut.",
            show_default="that of --data, or 1024",
        ),
    ] = None,
    tokens_per_step: Annotated[
        int, typer.Option(min=1, help="Tokens of documents in a step, about.")
    ] = 4096,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements; the fastest counts.")] = 3,
    device: Annotated[
        str | None,
        typer.Option(help="cpu, cuda, cuda:1, …", show_default="a GPU if there is one"),
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto (as stored), float32, bfloat16, …")] = "auto",
    attn_implementation: Annotated[
        str | None, typer.Option(help="eager, sdpa, flex_attention, flash_attention_2, …")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of random documents.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure tokens per second, padded and packed.

    Forward and backward passes are timed, both ways in turn, over the same tokens in as many steps.
    Padded rows hold one document and are as wide as the longest of their batch.

    Example: quire bench-model ./my-model --data packed
    """
    try:
        from quire.speed import SpeedOptions, measure_speed, packed_documents, random_documents
        from quire.verify.isolation.causal_lm import load_causal_lm
    except ModuleNotFoundError as missing:
        raise missing_dependency(str(missing.name), "quire bench-model", "torch,hf") from None
    rows = None
    if data is not None:
        from quire.packed import PackedDataset

        rows = PackedDataset(data)
    with stage("loading the model"):
        model = load_causal_lm(path, dtype, attn_implementation, device or "cpu")
    if rows is None:
        length = max_length or SpeedOptions().max_length
        vocabulary: Any = model.get_input_embeddings()  # type: ignore[operator]
        texts = random_documents(documents, vocabulary.num_embeddings, length, seed)
    else:
        length = max_length or rows.max_length
        texts = packed_documents(rows, documents)
    options = SpeedOptions(
        max_length=length, tokens_per_step=tokens_per_step, repeats=repeats, device=device
    )
    measured = measure_speed(model, texts, options)
    if as_json:
        typer.echo(json.dumps({"ways": [one.to_dict() for one in measured], "data": data}))
    else:
        _print(measured, len(texts), length)


def _print(measured: list[Measured], num_documents: int, max_length: int) -> None:
    padded, packed = measured
    say(f"{num_documents:,} documents, {padded.tokens:,} tokens, rows of {max_length:,}")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    has_memory = packed.peak_memory is not None
    for name in ("rows", "filled", "tokens/s", "speed", *(["peak memory"] if has_memory else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for one in measured:
        memory = [] if one.peak_memory is None else [f"{one.peak_memory / 2**30:.2f} GiB"]
        table.add_row(
            one.name,
            f"{one.rows:,}",
            f"{one.filled:.0%}",
            f"{one.tokens_per_second:,.0f}",
            f"{padded.seconds / one.seconds:.2f}x",
            *memory,
        )
    Console().print(table)
