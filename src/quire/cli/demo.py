"""`quire demo`: plan and pack a real corpus that every machine has."""

from __future__ import annotations

import json
import re
import shlex
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quire.cli.console import say
from quire.errors import InvalidOption, MissingDependency
from quire.files import whole_file
from quire.plan import Plan, make_plan, strategy_names
from quire.printable import counted

_ROWS_SHOWN, _DOCUMENTS_SHOWN, _TEXT_SHOWN = 3, 4, 48
_PATIENCE = 2.0
"""Seconds for one plan; a strategy that takes longer is not tried under its other policies."""


def demo(
    max_length: Annotated[int, typer.Option(help="The most tokens in a row.")] = 4096,
    corpus: Annotated[
        Path | None, typer.Option(help="A folder; every file in it is one document.")
    ] = None,
    pattern: Annotated[str, typer.Option(help="Which files of the folder to pack.")] = "*.py",
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("quire-demo"),
) -> None:
    """Plan and pack the sources of the Python standard library.

    Each file is a document and each byte a token. All strategies are compared, the files are packed
    with best_fit, the output is verified, and a few rows are shown. Every step prints the command
    that does the same. A second run finds the output complete.

    Example: quire demo --max-length 8192
    """
    folder = corpus or Path(sysconfig.get_paths()["stdlib"])
    files = _files(folder, pattern)
    lengths = np.array([path.stat().st_size for path in files])
    shown = escape(str(corpus)) if corpus else "the Python standard library"
    say(_headline(lengths, shown), markup=True)
    table, notes = _comparison(lengths, max_length)
    Console().print(table)
    for note in notes:
        say(note, "dim")
    _Demo(out, _name(corpus), max_length).run(folder, files)


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(path for path in folder.rglob(pattern) if "site-packages" not in path.parts)
    files = [path for path in files if path.is_file()]
    if not files:
        raise InvalidOption(f"{folder} has no file that matches {pattern!r}; change --pattern")
    return files


def _name(corpus: Path | None) -> str:
    """A name for the demo's files that depends on the corpus."""
    if corpus is None:
        return f"stdlib-{sys.version_info.major}.{sys.version_info.minor}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", corpus.resolve().name) or "corpus"


def _headline(lengths: np.ndarray, name: str) -> str:
    """How many documents there are, and how long."""
    median, largest = int(np.median(lengths)), int(lengths.max(initial=0))
    return (
        f"[bold]{len(lengths):,}[/] files of {name}: "
        f"[bold]{int(lengths.sum()):,}[/] tokens (bytes), median {median:,}, longest {largest:,}"
    )


def _comparison(lengths: np.ndarray, max_length: int) -> tuple[Table, list[str]]:
    """The table of all strategies, and the notes below it."""
    notes = [
        "full: tokens over rows x length; bound: proven fewest rows for the same "
        "fragments; cuts: how often a document is split; tokens lost: cut off and counted."
    ]
    table = Table(title=f"rows of {max_length:,}", title_justify="left")
    table.add_column("strategy")
    table.add_column("overlong")
    for name in ("rows", "bound", "full", "cuts", "tokens lost", "ms"):
        table.add_column(name, justify="right")
    for strategy in strategy_names():
        for overlong in ("split", "truncate", "fill"):
            try:
                started = time.perf_counter()
                plan = make_plan(lengths, max_length, strategy, overlong=overlong)
            except MissingDependency as missing:
                notes.append(str(missing))
                table.add_row(strategy, "[dim]not installed[/]")
                break
            seconds = time.perf_counter() - started
            table.add_row(strategy, overlong, *_figures(plan, seconds))
            if seconds > _PATIENCE:
                notes.append(f"{strategy} is slow, so its other policies are left out here.")
                break
        table.add_section()
    return table, notes


def _figures(plan: Plan, seconds: float) -> list[str]:
    documents = plan.ledger.documents.emitted
    lost = plan.ledger.tokens.num_dropped / max(1, plan.ledger.tokens.input)
    return [
        f"{plan.num_rows:,}",
        f"{plan.lower_bound:,}",
        f"{plan.utilization:.3%}",
        f"{plan.num_fragments - documents:,}",
        f"{lost:.1%}" if lost else "0",
        f"{1000 * seconds:.1f}",
    ]


class _Demo:
    """A corpus of files in the demo's own folder, and the steps of the demo."""

    def __init__(self, folder: Path, name: str, max_length: int) -> None:
        self._max_length = max_length
        self._corpus = folder / f"{name}.jsonl"
        self._out = folder / f"{name}-{max_length}"
        self._page = folder / f"{name}-{max_length}.html"
        self._files: list[str] = []
        self._num_unreadable = 0

    def run(self, root: Path, files: Sequence[Path]) -> None:
        """Do all steps in order; commands are printed and run."""
        self.write_corpus(root, files)
        _run(*self._pack_command(self._out, "--resume"))
        _run("verify", str(self._out))
        self.show_rows()
        _run("report", str(self._out), "--out", str(self._page))
        self.print_paths()

    def write_corpus(self, root: Path, files: Sequence[Path]) -> None:
        """Write one line per file; a file that is not valid UTF-8 becomes a record without text."""
        self._corpus.parent.mkdir(parents=True, exist_ok=True)
        (self._corpus.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        with (
            whole_file(self._corpus) as temporary,
            temporary.open("w", encoding="utf-8", newline="\n") as lines,
        ):
            for file in files:
                name, text = file.relative_to(root).as_posix(), _text(file)
                self._files.append(name)
                self._num_unreadable += text is None
                lines.write(json.dumps({"text": text, "file": name}) + "\n")
        say(f"\n{self._corpus} holds the files, one per line")
        if self._num_unreadable:
            say(f"{self._num_unreadable} are not valid UTF-8: they will be left out and listed")

    def show_rows(self) -> None:
        """Print the first rows: the files in them, the first token of each, and how it begins."""
        from quire.packed import PackedDataset
        from quire.text import ByteTokenizer

        say(f">>> quire.PackedDataset({str(self._out)!r})", "bold cyan")
        columns = ["input_ids", "document_starts", "document_ids", "document_offsets"]
        rows = PackedDataset(self._out, columns=columns)
        decode: Callable[[list[int]], str] = ByteTokenizer().decode
        # Most rows hold a part of one long document; rows with several documents show more.
        several = (n for n in range(len(rows)) if len(rows[n]["document_starts"]) > 1)
        shown = list(islice(several, _ROWS_SHOWN)) or range(min(_ROWS_SHOWN, len(rows)))
        for number in shown:
            row = {name: values.tolist() for name, values in rows[number].items()}
            starts = row["document_starts"]
            tokens, fragments = len(row["input_ids"]), len(starts)
            say(f"row {number}: {counted(tokens, 'token')}, {counted(fragments, 'fragment')}")
            sources = zip(starts, row["document_ids"], row["document_offsets"], strict=True)
            for start, document, offset in list(sources)[:_DOCUMENTS_SHOWN]:
                text = decode(row["input_ids"][start : start + 2 * _TEXT_SHOWN])[:_TEXT_SHOWN]
                place = f"{self._files[document]!r}, token {offset:,}"
                say(f"  at {start:>6,}  {place:<48} {text!r}")
            if len(starts) > _DOCUMENTS_SHOWN:
                say(f"  and {len(starts) - _DOCUMENTS_SHOWN} more")

    def print_paths(self) -> None:
        """Print where the files are, and what to try next."""
        say("")
        say(f"shards     {self._out / 'data'}: datasets, polars and pyarrow open it as it is")
        say(f"manifest   {self._out / 'manifest.json'}: options, checksums and the ledger")
        say(f"report     {self._page}: open it in a browser")
        if self._num_unreadable:
            say(f"left out   {self._out / 'bad_records.jsonl'}: where and why")
        say("try next:")
        inputs = ["--inputs", str(self._corpus), "--tokenizer", "byte"]
        _say_command("verify", str(self._out), *inputs)
        other = self._out.with_name(f"{self._out.name}-index")
        _say_command(*self._pack_command(other, "--index-only"))
        _say_command("replan", str(other), "--max-length", str(2 * self._max_length))

    def _pack_command(self, out: Path, flag: str) -> list[str]:
        options = ["--tokenizer", "byte", "--max-length", str(self._max_length), flag]
        if self._num_unreadable:
            options += ["--max-bad-records", str(self._num_unreadable)]
        return ["pack", str(self._corpus), "--out", str(out), *options]


def _text(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None


def _run(*words: str) -> None:
    """Print a command and run it; if it fails, the demo ends with its exit code."""
    from quire.cli.app import app

    _say_command(*words)
    if code := app(args=words, standalone_mode=False):
        raise typer.Exit(code)


def _say_command(*words: str) -> None:
    say(f"$ quire {shlex.join(words)}", "bold cyan")
