"""What every path emits has not changed."""

from __future__ import annotations

import json

import pytest

from tests.guard.cases import CASES
from tests.guard.digest import FILE, digest

RECORDED = json.loads(FILE.read_text())


def test_at_least_a_hundred_cases_are_recorded_and_none_is_obsolete():
    assert len(CASES) >= 100
    assert set(CASES) == set(RECORDED)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_every_case_gives_its_recorded_digest(name, tmp_path):
    parts = CASES[name](tmp_path)
    assert {part: digest(value) for part, value in parts.items()} == RECORDED[name]
