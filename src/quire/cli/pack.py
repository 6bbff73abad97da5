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

if TYPE_CHECKING:
    from quire.dataset.corpus import PackResult


def pack(
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Files, globs or folders of jsonl(.gz, .zst), parquet, arrow, txt (a document a "
            "file), or a dataset that save_to_disk wrote."
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    tokenizer: Annotated[
        str | None, typer.Option(help="'byte', a tokenizer.json, or a folder that has one.")
    ] = None,
    max_length: Annotated[int, typer.Option(help="Places in a row.")],
    strategy: Annotated[
        str, typer.Option(help="best_fit, first_fit, greedy, wrapped or tight.")
    ] = "best_fit",
    overlong: Annotated[
        str, typer.Option(help="split, fill, truncate, truncate_left, drop or error.")
    ] = "split",
    text_key: Annotated[str, typer.Option(help="The field that holds the text.")] = "text",
    messages_key: Annotated[
        str | None, typer.Option(help="The field that holds a conversation.")
    ] = None,
    assistant_only: Annotated[
        bool, typer.Option(help="Of conversations, train what the assistant says alone.")
    ] = True,
    pretokenized: Annotated[
        bool, typer.Option("--pretokenized", help="Records hold input_ids.")
    ] = False,
    column: Annotated[
        list[str] | None, typer.Option(help="A per-token column beside input_ids; may be repeated.")
    ] = None,
    stride: Annotated[int, typer.Option(help="Tokens repeated where a document is cut.")] = 0,
    min_len: Annotated[int, typer.Option(help="Drop rows with fewer tokens.")] = 1,
    max_len: Annotated[int | None, typer.Option(help="Drop documents with more tokens.")] = None,
    max_documents_per_row: Annotated[
        int | None, typer.Option(help="The most fragments in a row.")
    ] = None,
    add_bos: Annotated[bool, typer.Option(help="Open every fragment with BOS.")] = True,
    add_eos: Annotated[bool, typer.Option(help="Close every document with EOS.")] = True,
    truncate_at: Annotated[
        str | None, typer.Option(help="Cut texts before the first match of this expression.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds the order of rows.")] = 42,
    shuffle: Annotated[
        bool | None, typer.Option(help="Shuffle rows; by default unless the strategy keeps order.")
    ] = None,
    source: Annotated[
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
    workers: Annotated[int, typer.Option(help="Processes.")] = 1,
    partition_size: Annotated[
        str, typer.Option(help="Text that is packed together: 64M, 1G, …")
    ] = "256M",
    max_record_bytes: Annotated[str, typer.Option(help="A longer record is a bad one.")] = "256M",
    max_bad_records: Annotated[
        int, typer.Option(help="Bad records to leave out and list before it is an error.")
    ] = 0,
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
    from quire.dataset.corpus import pack_corpus

    shown_length = None if index_only else max_length  # rows are planned at the end
    with stopping(out), _warnings_as_lines(), PackProgress(shown_length) as display:
        result = pack_corpus(
            inputs,
            out,
            tokenizer,
            workers=workers,
            resume=resume,
            max_bad_records=max_bad_records,
            on_start=display.start,
            on_progress=display.advance,
            max_length=max_length,
            strategy=strategy,
            overlong=overlong,
            text_key=text_key,
            messages_key=messages_key,
            assistant_only=assistant_only,
            pretokenized=pretokenized,
            columns=column or None,
            stride=stride,
            min_len=min_len,
            max_len=max_len,
            max_documents_per_row=max_documents_per_row,
            add_bos=add_bos,
            add_eos=add_eos,
            truncate_at=truncate_at,
            seed=seed,
            shuffle=shuffle,
            keep_source=source,
            index_only=index_only,
            partition_size=partition_size,
            max_record_bytes=max_record_bytes,
        )
    print_result(result, as_json)


class _Stopped(BaseException):
    """SIGTERM, as an exception that no `except Exception` holds up."""


@contextmanager
def stopping(out: Path, remedy: str = "run the same with --resume") -> Iterator[None]:
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


def _say_stopped(out: Path, remedy: str) -> None:
    Console(stderr=True).print(
        f"stopped; what is committed stays in {str(out)!r}: {remedy}",
        markup=False,
        soft_wrap=True,
    )


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
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
    for reason in sorted({*ledger.documents.dropped, *ledger.tokens.dropped}):
        console.print(
            f"  dropped as {reason}: {ledger.documents.dropped[reason]:,} documents, "
            f"{ledger.tokens.dropped[reason]:,} tokens",
            highlight=False,
            soft_wrap=True,
        )
