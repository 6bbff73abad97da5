"""`quire pack`: a corpus on disk becomes a packed dataset."""

from __future__ import annotations

import json
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quire.cli import engine_options as engines
from quire.cli import input_options as given
from quire.storage import AnyPath, as_path

if TYPE_CHECKING:
    from quire.corpus import PackResult


def pack(
    inputs: given.Inputs,
    *,
    out: Annotated[str, typer.Option(help="The folder to write, or its URI.")],
    tokenizer: given.TokenizerName = None,
    max_length: Annotated[int, typer.Option(help="Places in a row.")],
    strategy: Annotated[
        str, typer.Option(help="best_fit, first_fit, greedy, wrapped or tight.")
    ] = "best_fit",
    overlong: Annotated[
        str, typer.Option(help="split, fill, truncate, truncate_left, drop or error.")
    ] = "split",
    text_column: given.TextKey = "text",
    messages_column: given.MessagesKey = None,
    tools_column: given.ToolsKey = "tools",
    assistant_only: given.AssistantOnly = True,
    chat_date: given.ChatDate = None,
    pretokenized: given.Pretokenized = False,
    tokens_column: given.TokensKey = "input_ids",
    column: given.Column = None,
    stride: given.Stride = 0,
    min_length: given.MinLen = 1,
    drop_longer_than: given.MaxLen = None,
    max_documents_per_row: given.MaxDocumentsPerRow = None,
    add_bos: given.AddBos = None,
    add_eos: given.AddEos = True,
    truncate_at: given.TruncateAt = None,
    seed: Annotated[int, typer.Option(help="Seeds the order of rows.")] = 0,
    shuffle: Annotated[
        bool | None, typer.Option(help="Shuffle rows; by default unless the strategy keeps order.")
    ] = None,
    keep_sources: Annotated[
        bool, typer.Option(help="Write the document id and offset of every fragment.")
    ] = True,
    index_only: Annotated[
        bool,
        typer.Option(
            "--index-only",
            help="Write tokenised documents and a plan of all their rows, instead of rows: quire "
            "replan then gives other rows in seconds.",
        ),
    ] = False,
    workers: engines.Workers = None,
    engine: engines.EngineName = "local",
    ray_address: engines.RayAddress = None,
    task_cpus: engines.TaskCpus = None,
    task_memory: engines.TaskMemory = None,
    partition_size: Annotated[
        str | None,
        typer.Option(
            help="Text that is packed together: 64M, 1G, …; by default a sixteenth of the inputs, "
            "from 4M to 256M."
        ),
    ] = None,
    max_record_bytes: given.MaxRecordBytes = "256M",
    max_bad_records: given.MaxBadRecords = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an output; start where there is none.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Pack a corpus into rows: parquet shards and a manifest, the same bytes whatever happens.

    Exit code 0: it stands whole. 2: an error. 130, 143: interrupted; --resume continues.

    The shards stand in OUT/data, which datasets, polars and pyarrow open as it is;
    OUT/manifest.json says what is in them, and quire verify recounts it.

    Example: quire pack corpus/*.jsonl --out packed --tokenizer byte --max-length 4096
    """
    from quire.cli.pack_progress import PackProgress
    from quire.corpus import pack_corpus

    chosen = engines.engine_of(engine, workers, ray_address, task_cpus, task_memory)
    shown_length = None if index_only else max_length  # rows are planned at the end
    with stopping(as_path(out)), warnings_as_lines(), PackProgress(shown_length) as display:
        result = pack_corpus(
            inputs,
            out,
            tokenizer,
            engine=chosen,
            resume=resume,
            max_bad_records=max_bad_records,
            on_start=display.start,
            on_progress=display.advance,
            max_length=max_length,
            strategy=strategy,
            overlong=overlong,
            text_column=text_column,
            messages_column=messages_column,
            tools_column=tools_column or None,
            assistant_only=assistant_only,
            chat_date=chat_date,
            pretokenized=pretokenized,
            tokens_column=tokens_column,
            columns=column or None,
            stride=stride,
            min_length=min_length,
            drop_longer_than=drop_longer_than,
            max_documents_per_row=max_documents_per_row,
            add_bos=add_bos,
            add_eos=add_eos,
            truncate_at=truncate_at,
            seed=seed,
            shuffle=shuffle,
            keep_sources=keep_sources,
            index_only=index_only,
            partition_size=partition_size,
            max_record_bytes=max_record_bytes,
        )
    print_result(result, as_json)


class _Stopped(BaseException):
    """SIGTERM, as an exception that no `except Exception` holds up."""


@contextmanager
def stopping(out: AnyPath, remedy: str = "run the same with --resume") -> Iterator[None]:
    """An interrupt ends with a line and its exit code, behind an output that can be resumed."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        _say_stopped(out, remedy)
        raise typer.Exit(130) from None
    except _Stopped:
        _say_stopped(out, remedy)
        raise typer.Exit(143) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _say_stopped(out: AnyPath, remedy: str) -> None:
    there = f"what is committed stays in {str(out)!r}: {remedy}"
    if isinstance(out, Path) and not out.exists():
        there = "nothing was committed yet: run the same again"
    Console(stderr=True).print(
        f"stopped; {there}",
        markup=False,
        soft_wrap=True,
    )


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print the warnings of the block when it ends, a line each."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    for warning in seen:
        text = str(warning.message).encode("unicode_escape").decode()
        Console(stderr=True).print(f"warning {text}", markup=False, soft_wrap=True)


def print_result(result: PackResult, as_json: bool) -> None:
    """Say what stands on disk now: for a person, or as one JSON object."""
    ledger = result.ledger
    if as_json:
        summary = {
            "path": str(result.path),
            "was_complete": result.was_complete,
            "rows": result.num_rows,
            "tokens": result.num_tokens,
            "plan": result.plan,
            "shards": len(result.manifest["shards"]),
            "utilization": result.utilization,
            "bad_records": result.manifest["bad_records"]["count"],
            "ledger": ledger.to_dict(),
        }
        typer.echo(json.dumps(summary, sort_keys=True))
        return
    console = Console()
    state = "was complete already" if result.was_complete else "is complete"
    plan = "" if result.plan is None else f", plan {result.plan!r}"
    line = f"{str(result.path)!r}{plan} {state}"
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"  [bold]{ledger.documents.emitted:,}[/] documents in [bold]{result.num_rows:,}[/] rows, "
        f"{len(result.manifest['shards'])} shards, [bold]{result.utilization:.3%}[/] full",
        highlight=False,
        soft_wrap=True,
    )
    for line in ledger.drop_lines():
        console.print(f"  {line}", highlight=False, soft_wrap=True)
