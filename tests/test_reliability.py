"""The page about reliability: every fault has a test, and every test that it names is there."""

from __future__ import annotations

import re

from tools.fault_lines import numbered
from tools.fault_tests import find_tests
from tools.reliability import PAGE, ROOT, page

FAULTS = ROOT.parent / "shared" / "FAULTS.md"


def test_every_fault_has_a_test_that_carries_its_number():
    found = find_tests(ROOT / "tests")
    assert [number for number in numbered() if not found.get(number)] == []


def test_the_lines_are_those_of_the_list_of_faults():
    """The list is beside the project, not in every clone."""
    last = max(numbered())
    if FAULTS.exists():
        text = re.sub(r"\s+", " ", FAULTS.read_text())
        last = max(int(number) for number in re.findall(r"(?:\.\*\*|[.)]) (\d+) [`a-zA-Z<]", text))
    assert sorted(numbered()) == list(range(1, last + 1))


def test_the_page_names_tests_that_are_there():
    """New tests may be missing there until it is written again; none that is gone may stay."""
    sentences = {
        test.partition("::")[2].removeprefix("test_").replace("_", " ")
        for tests in find_tests(ROOT / "tests").values()
        for test in tests
    }
    named = re.findall(r"`[\w/]+\.py` ([^|<]+?)(?= \||<br>)", PAGE.read_text())
    assert len(named) > 56
    assert set(named) <= sentences


def test_the_page_has_a_row_for_every_fault_and_every_file_of_counts():
    text = page()
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(
        numbered()
    )
    for file in (ROOT / "docs" / "reliability").glob("*.json"):
        assert f"### {file.stem[0].upper()}" in text
