"""`import quire` imports little."""

from __future__ import annotations

import json
import subprocess
import sys

PROBE = """
import sys, json, time
import numpy
before = set(sys.modules)
start = time.perf_counter()
import quire
seconds = time.perf_counter() - start
new = {name.partition('.')[0] for name in set(sys.modules) - before}
print(json.dumps([sorted(new - set(sys.stdlib_module_names)), seconds]))
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_quire_imports_numpy_at_most():
    packages, _ = json.loads(run(PROBE))
    assert set(packages) <= {"numpy", "quire"}


def test_every_public_name_exists():
    missing = run("import quire; print([n for n in quire.__all__ if not hasattr(quire, n)])")
    assert missing.strip() == "[]"
