"""Counts what `make mutants` found, and lists the mutants that no test noticed.

`python -m tools.mutants docs/reliability/mutants.json`, after `make mutants`, in the same folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

VERDICTS = {0: "survived", 1: "killed", 3: "killed", -24: "timeout", 33: "no tests"}
TEXT = "text of a message"
HINT = "a keyword for care or speed (strict=, copy=, kind=, dtype=)"
OTHER = "other"


def main(target: Path) -> None:
    codes = {}
    for meta in sorted(Path("mutants/src").rglob("*.meta")):
        codes |= json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    tried = {
        name: VERDICTS.get(code, str(code)) for name, code in codes.items() if code is not None
    }
    verdicts = Counter(tried.values())
    noticed = verdicts["killed"] + verdicts["timeout"]
    lived = {
        name: _change(name) for name, said in tried.items() if said in ("survived", "no tests")
    }
    kinds = Counter(_kind(change) for change in lived.values())
    found = {
        "command": "make mutants, then python -m tools.mutants",
        "mutants": len(codes),
        "tried": len(tried),
        **{name: verdicts[name] for name in ("killed", "timeout", "survived", "no tests")},
        "noticed, percent": round(100 * noticed / max(1, len(tried)), 1),
        "survivors by kind": dict(sorted(kinds.items())),
        "survivors": [{"mutant": name, "change": change} for name, change in sorted(lived.items())],
    }
    target.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print({name: value for name, value in found.items() if name != "survivors"})


def _change(name: str) -> list[str]:
    words = [str(Path(sys.executable).parent / "mutmut"), "show", name]
    shown = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603
    lines = shown.stdout.splitlines()
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def _kind(change: list[str]) -> str:
    after = [line[1:].strip() for line in change if line.startswith("+")]
    text = " ".join(after)
    if all(line.startswith(('"', 'f"')) for line in after) and after:
        return TEXT
    before = " ".join(line[1:].strip() for line in change if line.startswith("-"))
    if any(hint in before for hint in ("strict=", "copy=", "kind=", "dtype=")) and "XX" not in text:
        return HINT
    return OTHER


if __name__ == "__main__":
    main(Path(sys.argv[1]))
