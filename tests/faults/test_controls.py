"""The list of protections matches the sources, and the command detects a test that cannot fail."""

from __future__ import annotations

import dataclasses
import json

import pytest
from tools.fault_lines import numbered
from tools.fault_tests import find_tests

from tests.corpus.command import ROOT
from tests.faults.controls import Copy, control
from tests.faults.protections import PROTECTIONS

QUICK = next(one for one in PROTECTIONS if one.file == "files.py")
NEIGHBOUR = "test_files.py::test_39_a_new_folder_and_those_above_it_are_synced"


def test_every_fault_has_a_protection_that_can_be_removed():
    assert {one.fault for one in PROTECTIONS} == set(numbered())
    for one in PROTECTIONS:
        source = (ROOT / "src" / "quire" / one.file).read_text(encoding="utf-8")
        compile(one.removed(source), one.file, "exec")


def test_every_protection_s_test_carries_the_number_of_its_fault():
    tests = find_tests(ROOT / "tests")
    assert [one for one in PROTECTIONS if f"tests/{one.test}" not in tests[one.fault]] == []


def test_a_listed_protection_that_is_not_in_the_code_is_an_error():
    with pytest.raises(ValueError, match=r"files.py has 'no such text' 0 times, not once"):
        dataclasses.replace(QUICK, text="no such text").removed("some source")


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Copy:
    return Copy(tmp_path_factory.mktemp("controls"))


def test_a_removed_protection_is_detected_and_the_copy_is_restored(copy):
    assert control([QUICK], copy).noticed == [QUICK]
    assert copy.failing([QUICK.test]) == set()


@pytest.mark.parametrize(
    ("without", "complaint"),
    [
        ("temporary = target.with_name(f'.{target.name}.tmp')", "passes without it"),
        ("temporary = no_such_name", "only saw a NameError in the change itself"),
        ("temporary = (", "did not run without it"),
    ],
)
def test_a_test_that_does_not_detect_a_removal_is_reported(copy, without, complaint):
    """Negative controls: a harmless change, and changes that break everything."""
    assert complaint in copy.without(dataclasses.replace(QUICK, without=without)).complaint


def test_a_test_that_fails_with_the_protection_is_not_a_control(copy, monkeypatch):
    monkeypatch.setattr(copy, "failing", set)
    found = control([QUICK], copy)
    assert not found.noticed
    assert [failure.split(": ")[-1] for failure in found.failures] == [
        f"{QUICK.test} fails as things stand"
    ]


def test_failing_tests_are_named(copy):
    with copy.changed(QUICK):
        assert copy.failing([QUICK.test, NEIGHBOUR]) == {QUICK.test}


def test_the_recorded_counts_are_those_of_a_complete_run():
    file = ROOT / "docs" / "reliability" / "controls.json"
    counts = json.loads(file.read_text())
    assert counts["failures"] == []
    assert counts["fault_lines_with_a_protection_removed"] == counts["fault_lines"] == 56
    assert counts["tests_that_noticed"] == counts["protections_removed"] >= 56
