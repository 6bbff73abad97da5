"""`quire pack` and `quire replan`: a corpus on disk becomes a packed dataset."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.console import say, warnings_as_lines
from quire.cli.options import (
    AsJson,
    CorpusFormat,
    ImageRoot,
    Inputs,
    MaxBadRecords,
    TokenizerName,
    options_of,
)
from quire.corpus.options import CorpusOptions
from quire.errors import InvalidOption
from quire.options import PackOptions, parse_size
from quire.printable import counted
from quire.progress import stage
from quire.storage import AnyPath, as_path

if TYPE_CHECKING:
    from quire.corpus import PackResult
    from quire.corpus.engines import Engine

_ENGINE = "Running"


@options_of(CorpusOptions)
def pack(
    context: typer.Context,
    inputs: Inputs,
    *,
    out: Annotated[str, typer.Option(help="The folder to write, or its URI.")],
    tokenizer: TokenizerName = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an output; start one if there is none.")
    ] = False,
    format: CorpusFormat = None,  # noqa: A002
    max_bad_records: MaxBadRecords = 0,
    image_root: ImageRoot = None,
    as_json: AsJson = False,
    options: dict[str, Any],
    engine: Annotated[
        str,
        typer.Option(
            help="local: processes on this machine. ray: tasks on a Ray cluster.",
            rich_help_panel=_ENGINE,
        ),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            help="Worker processes, or Ray tasks at a time.",
            show_default="1; with Ray as many as fit",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of a Ray cluster.",
            show_default="$RAY_ADDRESS, a cluster on this machine, or one for this run",
            rich_help_panel=_ENGINE,
        ),
    ] = None,
    task_cpus: Annotated[
        float | None,
        typer.Option(help="CPUs that Ray gives to each task: 1, 4, …", rich_help_panel=_ENGINE),
    ] = None,
    task_memory: Annotated[
        str | None,
        typer.Option(help="Memory that Ray reserves for each task: 2G, …", rich_help_panel=_ENGINE),
    ] = None,
) -> None:
    """Pack a corpus into rows: parquet shards and a manifest.

    The shards are in OUT/data, which datasets, polars and pyarrow open as it is; OUT/manifest.json
    describes them, and quire verify checks them. The same inputs and options give the same bytes.

    Exit code 0: the output is complete. 2: an error. 130, 143: interrupted; --resume continues.

    Example: quire pack corpus/ --out packed --tokenizer byte --max-length 4096

    Example: quire pack megatron/corpus.idx --out plans --index-only --max-length 4096
    """
    from quire.cli.progress import PackProgress
    from quire.corpus import pack_corpus
    from quire.corpus.engines.local import keep_memory

    keep_memory()
    if _is_default(context, "strategy"):
        del options["strategy"]  # a resumed output may have been begun with another default
    chosen = engine_of(engine, workers, ray_address, task_cpus, task_memory)
    # Rows of an index are planned only at the end.
    shown_length = None if options["index_only"] else options["max_length"]
    with stopping(as_path(out)), warnings_as_lines(), PackProgress(shown_length) as display:
        result = pack_corpus(
            inputs,
            out,
            tokenizer,
            engine=chosen,
            resume=resume,
            format=format,
            max_bad_records=max_bad_records,
            image_root=image_root,
            on_start=display.start,
            on_progress=display.advance,
            **options,
        )
    print_result(result, as_json)


def _is_default(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is None or source.name == "DEFAULT"


@options_of(PackOptions, only_given=True, unset="as the corpus was packed")
def replan(
    path: Annotated[
        str, typer.Argument(help="A folder written by quire pack --index-only, or its URI.")
    ],
    *,
    options: dict[str, Any],
    name: Annotated[
        str | None, typer.Option(help="The plan's name.", show_default="STRATEGY-MAX_LENGTH")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add another plan to a corpus packed with --index-only.

    No text is read and no token is moved. Options that are not given stay as the corpus was packed.
    Open the rows with quire.PackedDataset(PATH, plan=NAME). An existing plan is left as it is, so
    after an interruption run the same command again.

    Example: quire replan ./packed --max-length 8192 --strategy wrapped
    """
    from quire.corpus import replan as plan_again

    with stopping(as_path(path), "run the same command again"), stage("planning rows"):
        result = plan_again(path, name=name, **options)
    print_result(result, as_json)


def engine_of(
    name: str,
    workers: int | None,
    ray_address: str | None,
    task_cpus: float | None,
    task_memory: str | None,
) -> Engine:
    """The engine; Ray's options are errors for another one."""
    from quire.corpus.engines import choose_engine
    from quire.corpus.engines.local import LocalEngine
    from quire.corpus.engines.ray import RayEngine

    if name == "ray":
        return RayEngine(
            address=ray_address,
            workers=workers,
            cpus=1 if task_cpus is None else task_cpus,
            memory=None if task_memory is None else parse_size("--task-memory", task_memory),
        )
    given = {"ray-address": ray_address, "task-cpus": task_cpus, "task-memory": task_memory}
    for option, value in given.items():
        if value is not None:
            raise InvalidOption(
                f"--{option} is for Ray, but the engine is {name!r}; add --engine ray, or leave "
                f"--{option} out"
            )
    chosen = choose_engine(name, workers)
    # This process is the command line's own, so its threads are known; see `LocalEngine.fork`.
    return replace(chosen, fork=True) if isinstance(chosen, LocalEngine) else chosen


class _Stopped(BaseException):
    """SIGTERM, as an exception that no `except Exception` catches."""


@contextmanager
def stopping(out: AnyPath, remedy: str = "run the same command with --resume") -> Iterator[None]:
    """End an interrupted block with one line and the exit code of the signal."""

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
        there = "nothing was committed yet: run the same command again"
    say(f"stopped; {there}", to_stderr=True)


def print_result(result: PackResult, as_json: bool) -> None:
    """Print what was written: for a person, or as one JSON object."""
    ledger, num_rows, utilization = result.ledger, result.num_rows, result.utilization
    num_shards = len(result.manifest["shards"])
    if as_json:
        summary = {
            "path": str(result.path),
            "was_complete": result.was_complete,
            "rows": num_rows,
            "tokens": result.num_tokens,
            "plan": result.plan,
            "shards": num_shards,
            "utilization": utilization,
            "bad_records": result.manifest["bad_records"]["count"],
            "ledger": ledger.to_dict(),
        }
        typer.echo(json.dumps(summary, sort_keys=True))
        return
    state = "was already complete" if result.was_complete else "is complete"
    plan = "" if result.plan is None else f", plan {result.plan!r}"
    say(f"{str(result.path)!r}{plan} {state}")
    say(
        f"  {counted(ledger.documents.emitted, 'document')} in {counted(num_rows, 'row')}, "
        f"{counted(num_shards, 'shard')}, {utilization:.3%} full"
    )
    for line in [*ledger.trained_lines(), *ledger.drop_lines()]:
        say(f"  {line}")
