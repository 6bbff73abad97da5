"""`quire verify-model`: does this model keep packed documents apart?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quire.errors import missing_dependency
from quire.verify.options import CallOptions, ProbeOptions

if TYPE_CHECKING:
    from quire.verify.report import IsolationReport


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
        bool, typer.Option("--with-attention-mask", help="Also pass ones for all tokens.")
    ] = False,
    use_cache: Annotated[
        bool | None,
        typer.Option(help="Pass use_cache; by default what the collator emits."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="auto (as stored), float32, bfloat16, …")] = "auto",
    attn_implementation: Annotated[
        str | None, typer.Option(help="eager, sdpa, flex_attention, flash_attention_2, …")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the batch.")] = 2,
    documents: Annotated[int, typer.Option(min=2, help="Documents in each row.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random tokens.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as JSON.")] = False,
) -> None:
    """Prove that a transformers model does not mix packed documents, under the call that you make.

    Exit code 0: isolated. 1: it is not, or it could not be proven. 2: the check could not be made.

    The model is examined in training mode. The weights must be trained or random: no leak can be
    seen in a model whose head is all zeros.

    Example: quire verify-model ./my-model --with-attention-mask
    """
    call = CallOptions(
        attention=None if attention == "none" else attention,
        with_attention_mask=with_attention_mask,
        use_cache=use_cache,
    )
    probe = ProbeOptions(num_rows=rows, documents_per_row=documents, seed=seed)
    report = _check(path, dtype, attn_implementation, call, probe)
    if as_json:
        typer.echo(report.to_json())
    else:
        _print(report)
    raise typer.Exit(0 if report.isolated else 1)


def _check(
    path: Path, dtype: str, attn_implementation: str | None, call: CallOptions, probe: ProbeOptions
) -> IsolationReport:
    try:
        from quire.verify.loading import load_causal_lm
        from quire.verify.probe import check_call
    except ModuleNotFoundError as missing:
        raise missing_dependency(str(missing.name), "quire verify-model", "torch,hf") from None
    return check_call(load_causal_lm(path, dtype, attn_implementation), call, probe)


def _print(report: IsolationReport) -> None:
    from quire.verify.display import print_report

    print_report(report, Console())
