"""Shared by the counting commands: their options, and totals printed and written as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path


def read_options(
    description: str | None, counted: str, default: int, arguments: list[str] | None
) -> argparse.Namespace:
    """How many points to count, the seed, and the file for the counts."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(f"--{counted}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def tell(counted: str, results: Mapping[str, Mapping[str, float]], said: argparse.Namespace) -> int:
    """Print and write the totals; 1 if anything was inexact."""
    totals = {n: sum(result[n] for result in results.values()) for n in ("tried", "inexact")}
    print(f"in all {totals['tried']:,} {counted}, {totals['inexact']} inexact")
    if said.json is not None:
        told = {"seed": said.seed, "totals": totals, "kinds": results}
        said.json.write_text(json.dumps(told, indent=1) + "\n")
    return int(totals["inexact"] > 0)
