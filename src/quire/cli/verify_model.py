"""`quire verify-model`: does this model keep packed documents apart?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quire.cli.options import AsJson
from quire.errors import missing_dependency
from quire.printable import counted
from quire.progress import stage

if TYPE_CHECKING:
    import torch

    from quire.kernels import KernelReport
    from quire.verify.isolation.report import IsolationReport

MOST_ROWS = 12
"""Pairs that are shown; the JSON form holds all of them."""


def verify_model(
    path: Annotated[Path, typer.Argument(help="A folder that save_pretrained wrote.")],
    *,
    attention: Annotated[
        str,
        typer.Option(
            help="What the collator emits: transformers, none, sdpa, eager, flex, varlen, segments."
        ),
    ] = "transformers",
    with_attention_mask: Annotated[
        bool, typer.Option("--with-attention-mask", help="Also pass an attention_mask of ones.")
    ] = False,
    use_cache: Annotated[
        bool | None,
        typer.Option(help="Pass use_cache; by default as the collator does."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, …")] = "cpu",
    dtype: Annotated[str, typer.Option(help="auto (as stored), float32, bf16, …")] = "auto",
    attn_implementation: Annotated[
        str | None, typer.Option(help="eager, sdpa, flex_attention, flash_attention_2, …")
    ] = None,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            help="Try every attention kernel of the device: isolation, loss, recompiles, speed.",
        ),
    ] = False,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the batch.")] = 2,
    documents: Annotated[int, typer.Option(min=2, help="Documents in each row.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random tokens.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Prove that a model keeps packed documents apart.

    Exit code 0: isolated. 1: not isolated, or not proven. 2: the check could not be made.

    The model is one of transformers, checked in training mode for the call that you make. Its
    weights must be trained or random: no leak can be seen in a model whose head is all zeros.

    With --kernels it tries every attention kernel that runs on the device, and names the others; 0
    then means that all that ran keep documents apart, with the loss and gradients of separate
    documents.

    Example: quire verify-model ./my-model --device cuda --dtype bf16 --kernels
    """
    try:
        from quire.verify.isolation.causal_lm import CallOptions, check_call, load_causal_lm
    except ModuleNotFoundError as missing:
        raise missing_dependency(str(missing.name), "quire verify-model", "torch,hf") from None
    options = CallOptions(
        attention=None if attention == "none" else attention,
        with_attention_mask=with_attention_mask,
        use_cache=use_cache,
        num_rows=rows,
        documents_per_row=documents,
        seed=seed,
    )
    with stage("loading the model"):
        model = load_causal_lm(path, dtype, attn_implementation, device)
    if kernels:
        _try_kernels(model, device, as_json=as_json)
    with stage("checking the model"):
        report = check_call(model, options)
    if as_json:
        typer.echo(report.to_json())
    else:
        print_report(report, Console())
    raise typer.Exit(0 if report.isolated else 1)


def _try_kernels(model: torch.nn.Module, device: str, *, as_json: bool) -> NoReturn:
    from quire.kernels import check_kernels

    with stage("trying kernels"):
        report = check_kernels(model, device=device)
    if as_json:
        typer.echo(report.to_json())
    else:
        print_kernels(report, Console())
    raise typer.Exit(0 if report.passed else 1)


def print_kernels(report: KernelReport, console: Console) -> None:
    """Write what every kernel did."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    console.print(Text(f"{report.model}, {report.dtype}, {report.device}; {versions}"))
    styles = {"passed": "bold green", "failed": "bold red", "skipped": "yellow"}
    for result in report.results:
        figures = "; ".join(f"{name} {_short(value)}" for name, value in result.figures.items())
        text = "; ".join(part for part in (result.reason, figures) if part)
        outcome = (result.outcome, styles[result.outcome])
        console.print(Text.assemble(outcome, f" {result.name}: {text}"))


def _short(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def print_report(report: IsolationReport, console: Console) -> None:
    """Write the verdict, the evidence, and what to do."""
    style = "bold green" if report.isolated else "bold red"
    console.print(Text.assemble((report.verdict, style), f": {report.meaning}"))
    mode = "training" if report.training else "evaluation"
    console.print(
        f"{counted(report.num_documents, 'document')}, {counted(report.num_pairs, 'pair')}, "
        f"{report.dtype}, {mode} mode, rounding up to {report.tolerance:.2g}",
        style="dim",
        highlight=False,
    )
    if report.pairs:
        console.print(_table(report))
    for found in report.altered[:MOST_ROWS]:
        console.print(Text(f"{found.document} differs from itself alone by {found.difference:.3g}"))
    for part in report.disagreements:
        console.print(Text(f"{part.form} {part.message}"))
    for name, reason in report.skipped.items():
        console.print(Text(f"not checked, {name}: {reason}", style="yellow"))
    if report.diagnosis:
        tried = " (tried: it helps)" if report.diagnosis.confirmed else ""
        console.print(Text.assemble(("cause: ", "bold"), report.diagnosis.cause))
        console.print(Text.assemble(("remedy: ", "bold"), report.diagnosis.remedy, tried))


def _table(report: IsolationReport) -> Table:
    table = Table("changed", "affected", "difference", "gradient", "kind")
    for pair in sorted(report.pairs, key=lambda pair: -pair.difference)[:MOST_ROWS]:
        gradient = "-" if pair.gradient is None else f"{pair.gradient:.3g}"
        cells = (pair.source.name, pair.target.name, f"{pair.difference:.3g}", gradient, pair.kind)
        table.add_row(*cells)
    if len(report.pairs) > MOST_ROWS:
        table.caption = f"{len(report.pairs) - MOST_ROWS} more, all in --json"
    return table
