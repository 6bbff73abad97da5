"""`python -m tests.guard` records the current digests, and names those that changed."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path

from tests.guard.cases import CASES
from tests.guard.digest import FILE, digest


def main() -> None:
    warnings.simplefilter("ignore")
    before = json.loads(FILE.read_text()) if FILE.exists() else {}
    after = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            parts = case(Path(folder))
        after[name] = {part: digest(value) for part, value in parts.items()}
        if before.get(name) != after[name]:
            print("changed:" if name in before else "new:", name)
    FILE.write_text(json.dumps(after, indent=1, sort_keys=True) + "\n")
    print(f"{len(after)} cases, {sum(map(len, after.values()))} digests")


if __name__ == "__main__":
    main()
