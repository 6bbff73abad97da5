"""How many examples a property gets: a few, its own number, or 10,000 in nightly runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROPERTIES = """
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

counts = {"plain": 0, "named": 0, "three": 0, "begun": 0}

@given(st.integers())
def test_plain(number):
    counts["plain"] += 1

@settings(max_examples=7)
@given(st.integers())
def test_named(number):
    counts["named"] += 1

@pytest.mark.parametrize("case", [1, 2, 3])
@given(st.integers())
def test_three(case, number):
    counts["three"] += 1

class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        counts["begun"] += 1

    @rule(number=st.integers())
    def go(self, number):
        pass

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=3, stateful_step_count=1)

def test_counts():
    import json
    print("COUNTS", json.dumps(counts))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "least"),
    [("quick", (25, 7, 24, 3)), ("quire", (100, 7, 300, 3)), ("nightly", (600,) * 4)],
)
def test_the_profile_says_how_many_examples_there_are(tmp_path, profile, least):
    """With 600 in place of 10,000, which would take a minute here."""
    conftest = (ROOT / "tests" / "conftest.py").read_text().replace("10_000", "600")
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_properties.py").write_text(PROPERTIES)
    written = tmp_path / "written.json"
    plugins = ["-p", "no:cacheprovider", "-p", "tools.properties"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", *plugins, str(tmp_path)],
        env={
            **os.environ,
            "QUIRE_HYPOTHESIS": profile,
            "QUIRE_EXAMPLES": str(written),
            "PYTHONPATH": str(ROOT),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (said,) = [
        line.partition("COUNTS ")[2] for line in done.stdout.splitlines() if "COUNTS" in line
    ]
    counted = json.loads(said.rstrip("."))
    for name, fewest in zip(("plain", "named", "three", "begun"), least, strict=True):
        assert fewest <= counted[name] <= fewest * 1.2 + 2, counted
    told = json.loads(written.read_text())
    assert {name.rpartition("::")[2]: each["examples"] for name, each in told.items()} == {
        "test_plain": least[0],
        "test_named": least[1],
        "test_three": least[2],
        "runTest": least[3],
    }
    assert not any(each["failures"] or each["all there are"] for each in told.values())


def test_the_nightly_profile_runs_ten_thousand_examples():
    from tests.conftest import NIGHTLY

    assert NIGHTLY == 10_000
