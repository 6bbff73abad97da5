"""By night every property is tried 10,000 times, whatever number stands beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROPERTIES = """
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

counts = {"plain": 0, "named": 0, "begun": 0}

@given(st.integers())
def test_plain(number):
    counts["plain"] += 1

@settings(max_examples=7)
@given(st.integers())
def test_named(number):
    counts["named"] += 1

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


@pytest.mark.parametrize(("profile", "least"), [("quire", (100, 7, 3)), ("nightly", (300,) * 3)])
def test_the_profile_says_how_many_examples_there_are(tmp_path, profile, least):
    """With 300 in place of 10,000, which would take a minute here."""
    conftest = (ROOT / "tests" / "conftest.py").read_text().replace("10_000", "300")
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_properties.py").write_text(PROPERTIES)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "QUIRE_HYPOTHESIS": profile},
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
    for name, fewest in zip(("plain", "named", "begun"), least, strict=True):
        assert fewest <= counted[name] <= fewest * 1.2 + 2, counted


def test_ten_thousand_is_the_number_of_the_night():
    from tests.conftest import NIGHTLY

    assert NIGHTLY == 10_000
