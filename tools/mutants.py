"""Counts what `make mutants` found, and lists the mutants that no test noticed.

`python -m tools.mutants docs/reliability/mutants.json [folder ...]`, after `make mutants` in these
folders (clones that tried a part each), or in this one. An interrupted run has tried a random
sample (see `tools.mutmut_in_random_order`), and the percentage is that of the mutants tried.
Survivors are looked up in `tools/explained/*.toml`, which tells why no test can detect them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERDICTS = {0: "survived", 1: "killed", 3: "killed", 33: "no tests", -24: "timeout", -9: "timeout"}
"""By exit code. A test that exceeds its processor time gets SIGXCPU, and SIGKILL a second later."""
LIVED = ("survived", "no tests")
EXPLAINED = Path(__file__).parent / "explained"

Change = dict[str, str]
"""What a mutant changes: function, before, after."""


def main(target: Path, folders: list[Path]) -> int:
    verdicts = {name: said for folder in folders for name, said in _verdicts(folder)}
    counts = Counter(verdicts.values())
    noticed = counts["killed"] + counts["timeout"]
    tried = len(verdicts) - counts["not tried"]
    lived = [_change(name, folder) for folder in folders for name in _survivors(folder)]
    reasons = {_key(each): each["why"] for each in _explained()}
    survivors = [each | {"why": reasons.get(_key(each), "")} for each in lived]
    unexplained = sum(not each["why"] for each in survivors)
    found = {
        "command": "make mutants, then python -m tools.mutants",
        "mutants": len(verdicts),
        "tried": tried,
        **{said: counts[said] for said in ("not tried", "killed", "timeout", *LIVED)},
        "noticed, percent": round(100 * noticed / max(1, tried), 1),
        "survivors explained": len(survivors) - unexplained,
        "survivors unexplained": unexplained,
        "survivors": sorted(survivors, key=_key),
    }
    target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print({name: value for name, value in found.items() if name != "survivors"})
    return int(unexplained > 0)


def _verdicts(folder: Path) -> Iterator[tuple[str, str]]:
    for meta in sorted((folder / "mutants" / "src").rglob("*.meta")):
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        for name, code in codes.items():
            yield name, "not tried" if code is None else VERDICTS.get(code, f"exit code {code}")


def _survivors(folder: Path) -> list[str]:
    return [name for name, said in _verdicts(folder) if said in LIVED]


def _change(name: str, folder: Path) -> Change:
    words = [str(Path(sys.executable).parent / "mutmut"), "show", name]
    shown = subprocess.run(  # noqa: S603
        words, capture_output=True, text=True, check=True, cwd=folder
    )
    lines = [line for line in shown.stdout.splitlines() if line[:3] not in ("+++", "---")]
    before, after = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return {"function": function_of(name), "before": before, "after": after}


def function_of(mutant: str) -> str:
    """The function that a mutant changes.

    >>> function_of("quire.plan.fill.x__room__mutmut_7")
    'quire.plan.fill._room'
    >>> function_of("quire.plan.online.xǁOnlinePackerǁadd__mutmut_12")
    'quire.plan.online.OnlinePacker.add'
    """
    module, _, name = mutant.rpartition("__mutmut_")[0].rpartition(".")
    plain = name.removeprefix("x").removeprefix("_").replace("ǁ", ".").lstrip(".")
    return f"{module}.{plain}"


def _explained() -> Iterator[dict[str, Any]]:
    for file in sorted(EXPLAINED.glob("*.toml")):
        yield from tomllib.loads(file.read_text(encoding="utf-8"))["equivalent"]


def _key(change: Change) -> tuple[str, str, str]:
    """A key of a change that does not depend on the line number and indentation."""
    function, before, after = (change[name] for name in ("function", "before", "after"))
    return function, _stripped(before), _stripped(after)


def _stripped(lines: str) -> str:
    return "\n".join(line.strip() for line in lines.strip().splitlines())


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("json", type=Path, help="Where the counts are written.")
    options.add_argument("folders", type=Path, nargs="*", default=[Path()])
    asked = options.parse_args()
    sys.exit(main(asked.json, asked.folders))
