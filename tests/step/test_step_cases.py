"""The tool that plans random steps: what it counts is of one version of the code."""

from __future__ import annotations

import json

from tools import step_cases


def test_a_run_continues_from_its_counts_and_starts_again_after_a_change_of_the_code(
    tmp_path, monkeypatch
):
    file = tmp_path / "step.json"
    for cases in (3, 5):
        step_cases.main(cases, file=file)
        result = json.loads(file.read_text())
        assert result["counts"]["cases"] == cases
        assert result["violations"] == 0
        assert result["earlier code"] == {}
    monkeypatch.setattr(step_cases, "digest", lambda: "of other code")
    step_cases.main(2, file=file)
    result = json.loads(file.read_text())
    assert result["counts"]["cases"] == 2
    assert result["earlier code"] == {"cases": 5, "violations": 0}
