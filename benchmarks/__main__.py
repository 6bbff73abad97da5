"""Runs benchmarks and writes their sections of docs/benchmarks.md; all, or those that are named."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path

ALL = (
    "planner",
    "exact_fit",
    "scale",
    "online",
    "tight",
    "vectors",
    "balance",
    "step",
    "blocks",
    "pack_dataset",
    "shuffled",
    "chat",
    "corpus",
    "corpus_share",
    "ray_engine",
    "loader",
    "collate",
    "isolation",
    "vision",
    "stream",
)
OPT_IN = ("corpus_3gb", "foreign")
"""Large, or compared with a package that is not among the extras: they run only if named."""
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PACKAGES = (
    "numpy",
    "pyarrow",
    "scipy",
    "trl",
    "torch",
    "transformers",
    "datasets",
    "tokenizers",
    "grain",
    "ray",
)
SECTION = re.compile(r"^<!-- (\w+) -->\n", flags=re.MULTILINE)


def main(names: list[str]) -> None:
    for name in names or ALL:
        section = _run(name)  # each is written at once: a later one may be interrupted
        sections = {**_written(), name: section}
        parts = [
            f"<!-- {known} -->\n{sections[known]}" for known in (*ALL, *OPT_IN) if known in sections
        ]
        PAGE.write_text("\n".join([_head(), *parts]), encoding="utf-8")
    print(f"wrote {PAGE}")


def _written() -> dict[str, str]:
    """The sections that the page has already."""
    if not PAGE.exists():
        return {}
    _, *rest = SECTION.split(PAGE.read_text(encoding="utf-8"))
    return {name: text.rstrip() + "\n" for name, text in zip(rest[::2], rest[1::2], strict=True)}


def _run(name: str) -> str:
    print(f"== {name}", flush=True)
    module = importlib.import_module(f"benchmarks.{name}")
    tables = "\n".join(table.markdown() for table in module.run())
    return f"## {module.TITLE}\n\n{module.__doc__.strip()}\n\n{tables}"


def _head() -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return (
        "# Benchmarks\n\n"
        "Made by `make bench` (one section: `make bench ONLY=planner`); every comparison runs "
        "both sides in one process. Times are the best of several runs on a shared machine: read "
        "the ratios.\n\n"
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {versions}.\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
