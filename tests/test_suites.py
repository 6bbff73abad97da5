"""How the suites run: a crash loses one result, and what they cost is counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.suites import counts_of

ROOT = Path(__file__).resolve().parents[1]
CRASH = """
import os, signal
import pytest

@pytest.mark.parametrize("number", range(4))
def test_before(number):
    pass

def test_crash():
    os.kill(os.getpid(), signal.{signal})

@pytest.mark.parametrize("number", range(4))
def test_behind(number):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("signal", ["SIGILL", "SIGSEGV"])
def test_a_crash_loses_the_result_of_no_other_test(tmp_path, signal):
    words = re.search(r"^PYTEST := \S+ (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    (tmp_path / "test_crash.py").write_text(CRASH.format(signal=signal))
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    told = tmp_path / "results.xml"
    options = [f"--junitxml={told}", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, *words.split(), *options, str(tmp_path)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 9 passed" in done.stdout, done.stdout
    assert "crashed while running 'test_crash.py::test_crash'" in done.stdout
    assert counts_of(told) == {"tests": 10, "skipped": 0, "failed": 1}
