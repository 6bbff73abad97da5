"""Runs every benchmark and writes docs/benchmarks.md: python -m benchmarks [NAME ...]."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

ALL = ("planner", "online", "tight", "balance", "collate", "blocks", "pack_dataset")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PACKAGES = ("numpy", "pyarrow", "scipy", "trl", "torch", "transformers", "datasets")


def main(names: list[str]) -> None:
    sections = {name: _run(name) for name in names or ALL}
    if names:
        print("\n\n".join(sections.values()))
        return
    PAGE.write_text("\n\n".join([_head(), *sections.values()]), encoding="utf-8")
    print(f"wrote {PAGE}")


def _run(name: str) -> str:
    print(f"== {name}", flush=True)
    module = importlib.import_module(f"benchmarks.{name}")
    tables = "\n".join(table.markdown() for table in module.run())
    return f"## {module.TITLE}\n\n{module.__doc__.strip()}\n\n{tables}"


def _head() -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return (
        "# Benchmarks\n\n"
        "Made by `make bench`; every comparison runs both sides in one process. Times are the "
        "best of several runs on a shared machine: read the ratios.\n\n"
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {versions}."
    )


if __name__ == "__main__":
    main(sys.argv[1:])
