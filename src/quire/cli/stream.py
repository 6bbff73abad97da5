"""`quire stream`: run a stream, show its throughput and utilization, save and resume it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from quire.cli.console import require_folder, say, warnings_as_lines
from quire.cli.options import TokenizerName, options_of
from quire.cli.progress import ProgressLine
from quire.config import load_options
from quire.errors import InvalidOption
from quire.printable import counted
from quire.stream import Stream, StreamConfig, load_state, open_stream, save_state
from quire.stream.options import StreamOptions

_SECONDS_BETWEEN_FIGURES = 0.2


@options_of(StreamOptions, leave_out=("files", "sources", "names"), only_given=True)
def stream(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files, folders or globs of jsonl (.gz, .zst), parquet and text. "
            "PATH:COLUMN names the column of the text."
        ),
    ] = None,
    *,
    tokenizer: TokenizerName = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file with the sections data, train and model, instead of files and the "
            "options below."
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option(help="name=value in place of the config's, such as data.seed=1."),
    ] = None,
    batches: Annotated[
        int | None, typer.Option(min=0, help="Stop after this many batches; by default at the end.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Resume from this state if it exists, and save it there.")
    ] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Write statistics as JSON.")] = False,
    options: dict[str, Any],
) -> None:
    """Stream packed batches; show throughput and utilization.

    An interrupted run (SIGINT, SIGTERM) saves its state and exits with 130 or 143.

    Example: quire stream docs/ --tokenizer byte --max-length 512 --batch-size 8

    Example: quire stream --config stream.yaml --batches 100 --state state.json
    """
    if files:
        options["files"] = tuple(files)
    if tokenizer is not None:
        options["tokenizer"] = tokenizer
    if config is not None:
        options = _from_config(config, override or [], options)
    elif override:
        raise InvalidOption("--override changes a config; add --config, or use the options")
    if state is not None:
        require_folder("--state", state)
    with _interrupts() as interrupted, open_stream(**options) as opened:
        if state is not None and state.exists():
            opened.load_state_dict(load_state(state))
        try:
            _run(opened, batches, interrupted)
        finally:  # the state of the last batch is valid after an error, too
            if state is not None:
                save_state(opened.state_dict(), state)
        _report(opened, as_json=stats)
    if interrupted:
        say(_how_to_go_on(opened, state), to_stderr=True)
        raise typer.Exit(128 + interrupted[0])


def _how_to_go_on(opened: Stream, state: Path | None) -> str:
    step = f"stopped after step {opened.stats()['step']:,}"
    if state is None:
        return f"{step}; no state was saved: with --state FILE, the next run goes on from there"
    return f"{step}; the state is saved in {str(state)!r}: run the same command to go on"


def _from_config(config: Path, overrides: list[str], others: dict[str, Any]) -> dict[str, Any]:
    if others:
        raise InvalidOption(
            f"there are --config and {', '.join(others)}; give one or the other, or use --override"
        )
    with warnings_as_lines():
        return {"config": load_options(StreamConfig, config, overrides)}


def _run(opened: Stream, batches: int | None, interrupted: list[int]) -> None:
    done = counted_to = 0
    shown = 0.0
    with ProgressLine("streaming", batches) as line:
        while not interrupted and (batches is None or done < batches):
            if next(opened, None) is None:
                break
            done += 1
            now = time.monotonic()
            if now - shown >= _SECONDS_BETWEEN_FIGURES or done == batches:
                line.advance(done - counted_to, _line(opened))
                shown, counted_to = now, done


def _line(opened: Stream) -> str:
    figures = opened.stats()
    return (
        f"step {figures['step']:,}, epoch {figures['epoch']}: "
        f"{figures['tokens_per_second']:,.0f} tokens/s, {figures['utilization']:.2%} full"
    )


def _report(opened: Stream, *, as_json: bool) -> None:
    if as_json:
        report = {**opened.stats(), "ledger": opened.ledger.to_dict()}
        typer.echo(json.dumps(report, sort_keys=True))
    else:
        typer.echo(_line(opened))
        sources = opened.stats()["sources"]
        for one in sources if len(sources) > 1 else ():
            say(
                f"  {one['source']}: {counted(one['tokens'], 'token')} ({one['share']:.1%}), "
                f"read to the end {counted(one['epochs'], 'time')}"
            )
        for line in opened.ledger.trained_lines():
            say(f"  {line}")


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Signals received: the run stops after the current batch, or at once on a second signal."""
    came: list[int] = []

    def note(number: int, _: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
