"""How the suites run: a crash loses one result, and their cost is counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools.suites import counts_of

from tests.quick import few

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


def test_one_in_so_many_cases_is_quick():
    quick, *slow = few([("a", 1), ("b", 2), ("c", 3)], one_in=3)
    assert quick == ("a", 1)
    assert [(case.values, case.marks[0].name) for case in slow] == [
        (("b", 2), "slow"),
        (("c", 3), "slow"),
    ]
    assert few([5, 6], one_in=2)[1].values == (6,)


def test_every_test_listed_as_slow_exists():
    from tests.conftest import SLOW, is_slow

    assert [path for path in SLOW if not (ROOT / "tests" / path).exists()] == []
    assert is_slow(ROOT / "tests" / "storage" / "test_google.py")
    assert not is_slow(ROOT / "tests" / "test_labels.py")
