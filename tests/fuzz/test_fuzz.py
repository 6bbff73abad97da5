"""A short, repeatable run of every target; and every guard detects forbidden behavior."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.fuzz.campaign import Campaign, survey
from tests.fuzz.mutation import VALUES, mutated_bytes, mutated_json, mutated_lines
from tests.fuzz.run import main, shared
from tests.fuzz.targets import CONTROLS, NAMES, load_target

DETECTED = {
    "control_socket": "socket",
    "control_read_outside": "/etc/hostname",
    "control_write_outside": "beside",
    "control_read_unheard": "bait opened: b'secret'",
    "control_remove_outside": "os.remove",
    "control_program": "subprocess.Popen",
    "control_code": "exec '<given>'",
    "control_pickle": "pickle.find_class",
    "control_key_error": "keys",
    "control_swallowed": "socket",
    "control_hang": "over 5 s",
    "control_memory": "4.00 GiB",
    "control_overflow": "overflow",
    "control_crash": "",
}
KINDS = {
    "control_key_error": "KeyError",
    "control_hang": "Hang",
    "control_memory": "MemoryError",
    "control_overflow": "RuntimeWarning",
    "control_crash": "crash SIGABRT",
}


SLOW = [
    "recipe", "shard", "manifest_verified", "index", "index_verified", "resumed_run",
    "tokenizer_engine",
]  # fmt: skip


@pytest.fixture(scope="module")
def found():
    """A few executions of every target."""
    quick = survey([name for name in NAMES if name not in SLOW], 150)
    return {**quick, **survey(SLOW, 15)}


@pytest.fixture(scope="module")
def found_out():
    """What the guards report about forbidden behavior; one case kills its process."""
    others = [name for name in CONTROLS if name not in ("control_crash", "control_hang")]
    caught = {**survey(others, 8), **survey(["control_hang"], 2)}
    return {**caught, "control_crash": Campaign("control_crash", 0).run(3)}


@pytest.mark.parametrize("name", NAMES)
def test_every_input_gives_a_result_or_a_typed_error(name, found):
    """Faults 27, 28, 50 to 53: mutated states, files and texts."""
    counts = found[name].to_dict()
    assert counts["kinds_of_defects"] == []
    assert counts["executions"] == (15 if name in SLOW else 150)
    assert counts["executions"] == counts["accepted"] + sum(counts["refused"].values())
    assert counts["refused"], "what is refused nowhere is not fuzzed"


@pytest.mark.parametrize("name", list(CONTROLS))
def test_forbidden_behavior_is_detected(name, found_out):
    counts = found_out[name].to_dict()
    assert counts["defects"], "the control did wrong"
    assert counts["defects"] == counts["executions"] - counts["accepted"]
    (group,) = counts["kinds_of_defects"]
    assert DETECTED[name] in group["message"]
    assert group["kind"] == KINDS.get(name, "Forbidden")


def test_every_control_is_expected_to_be_detected():
    assert set(DETECTED) == set(CONTROLS)
    assert all(load_target(name).name == name for name in CONTROLS)


def test_the_command_counts_by_target_and_fails_if_there_is_a_defect(tmp_path, capsys):
    file = tmp_path / "counts.json"
    arguments = ["--executions", "8", "--json", str(file)]
    assert main(["--target", "control_key_error", *arguments]) == 1
    counts = json.loads(file.read_text())
    assert counts["totals"]["executions"] == 8
    assert counts["totals"]["defects"] == counts["targets"]["control_key_error"]["defects"] > 0
    assert "KeyError" in capsys.readouterr().out
    assert main(["--target", "online_state", *arguments]) == 0
    assert json.loads(file.read_text())["targets"]["online_state"]["refused"]


def test_executions_are_divided_among_all_targets():
    counts = shared(1_000_000, NAMES)
    assert sum(counts.values()) >= 1_000_000
    assert set(counts) == set(NAMES)
    assert min(shared(1, NAMES).values()) == 1


def test_changes_of_one_execution_do_not_affect_another():
    """The values to choose from were once modified, so no execution could be repeated."""
    before = repr(VALUES)
    for seed in range(3000):
        mutated_json(Random(seed), '{"a": [[], {}], "b": [[1, 2]], "c": {"d": {"e": []}}}')
    assert repr(VALUES) == before


def test_changes_depend_on_the_seed():
    data, text = b'{"a": [1, 2, {"b": "c"}]}', "a: 1\nb: 2\n"
    makers = (
        lambda choose: mutated_bytes(choose, data, [b"other"]),
        lambda choose: repr(mutated_json(choose, data)),
        lambda choose: mutated_lines(choose, text, ["- ", "*x"]),
    )
    for make in makers:
        first = [make(Random(seed)) for seed in range(300)]
        assert first == [make(Random(seed)) for seed in range(300)]
        assert len(set(first)) > 100
