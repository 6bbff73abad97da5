"""The reliability page: every fault has a test, and every test that it names exists."""

from __future__ import annotations

import ast
import json
import re

from tools.fault_lines import numbered
from tools.fault_tests import find_tests
from tools.reliability import DEFECTS, PAGE, ROOT, page

FAULTS = ROOT.parent / "shared" / "FAULTS.md"


def test_every_fault_has_a_test_with_its_number():
    found = find_tests(ROOT / "tests")
    assert [number for number in numbered() if not found.get(number)] == []


def test_the_rows_are_those_of_the_list_of_faults():
    """The list is next to the project, not in every clone."""
    last = max(numbered())
    if FAULTS.exists():
        text = re.sub(r"\s+", " ", FAULTS.read_text())
        last = max(int(number) for number in re.findall(r"(?:\.\*\*|[.)]) (\d+) [`a-zA-Z<]", text))
    assert sorted(numbered()) == list(range(1, last + 1))


def test_the_page_names_tests_that_exist():
    """New tests may be missing until the page is regenerated; removed ones may not stay."""
    sentences = {
        test.partition("::")[2].removeprefix("test_").replace("_", " ")
        for tests in find_tests(ROOT / "tests").values()
        for test in tests
    }
    faults = PAGE.read_text().partition("## Defects")[0]
    named = re.findall(r"`[\w/]+\.py` ([^|<]+?)(?= \||<br>)", faults)
    assert len(named) > 56
    assert set(named) <= sentences


def test_the_page_has_a_row_for_every_fault_and_every_file_of_counts():
    text = page()
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(
        numbered()
    )
    for file in (ROOT / "docs" / "reliability").glob("*.json"):
        assert f"### {file.stem[0].upper()}" in text


def test_every_closed_defect_names_a_test_that_exists():
    defects = json.loads(DEFECTS.read_text())
    assert len(defects) > 50
    for defect in defects:
        path, _, name = defect["test"].partition("::")
        tree = ast.parse((ROOT / path).read_text())
        tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in tests, defect["test"]
