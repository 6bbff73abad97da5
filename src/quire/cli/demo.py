"""`quire demo`: plan and pack a real corpus that every machine has."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from quire.cli.demo_pack import DemoPack
from quire.cli.demo_plans import comparison, headline
from quire.errors import InvalidOption

console = Console()


def demo(
    max_length: Annotated[int, typer.Option(help="Tokens in a row.")] = 4096,
    corpus: Annotated[
        Path | None, typer.Option(help="A folder; every file in it is one document.")
    ] = None,
    pattern: Annotated[str, typer.Option(help="The files of the folder to pack.")] = "*.py",
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("quire-demo"),
) -> None:
    """Plan the Python standard library's own sources with every strategy, then pack them.

    Each file is a document and each byte a token. The output is verified, and a few rows are shown;
    every step prints the command that does the same. A second run finds the output complete.

    Example: quire demo --max-length 8192
    """
    folder = corpus or Path(sysconfig.get_paths()["stdlib"])
    files = _files(folder, pattern)
    lengths = np.array([path.stat().st_size for path in files])
    shown = escape(str(corpus)) if corpus else "the Python standard library"
    console.print(headline(lengths, shown), soft_wrap=True)
    table, notes = comparison(lengths, max_length)
    console.print(table)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)
    DemoPack(out, _name(corpus), max_length).run(folder, files)


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(path for path in folder.rglob(pattern) if "site-packages" not in path.parts)
    files = [path for path in files if path.is_file()]
    if not files:
        raise InvalidOption(f"{folder} holds no file that matches {pattern!r}; say --pattern")
    return files


def _name(corpus: Path | None) -> str:
    """A name for the demo's files: another one for another corpus."""
    if corpus is None:
        return f"stdlib-{sys.version_info.major}.{sys.version_info.minor}"
    return re.sub(r"[^A-Za-z0-9._-]", "_", corpus.resolve().name) or "corpus"
