"""A wrong option is an error before anything slow starts, in every command."""

from __future__ import annotations

import json
from unittest.mock import patch

import pytest
from tests import commands

SLOW = (
    "quire.corpus.lengths.make_partitions",
    "quire.corpus.estimate.pack_sample",
    "quire.corpus.partitions._spans",
    "quire.verify.output.check._read_shard",
    "quire.report.page._figures",
    "transformers.AutoModelForCausalLM.from_pretrained",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    (folder / "a.jsonl").write_text(json.dumps({"text": "abc"}) + "\n")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    (folder / "full").mkdir()
    (folder / "full" / "file").touch()
    done = commands.run("pack", folder / "a.jsonl", "--out", folder / "packed",
                        "--tokenizer", "byte", "--max-length", "8")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def texts(folder, command, *more):
    return [command, folder / "a.jsonl", "--tokenizer", "byte", "--max-length", "8", *more]


CASES = {
    "pack: strategy": lambda f: texts(f, "pack", "--out", f / "out", "--strategy", "foo"),
    "pack: output": lambda f: texts(f, "pack", "--out", f / "full"),
    "pack: engine": lambda f: texts(f, "pack", "--out", f / "out", "--engine", "foo"),
    "pack: workers": lambda f: texts(f, "pack", "--out", f / "out", "--workers", "0"),
    "pack: pattern": lambda f: texts(f, "pack", f, "--out", f / "out", "--pattern", "*.java"),
    "plan: strategy": lambda f: texts(f, "plan", "--no-cache", "--strategy", "foo"),
    "plan: overlong": lambda f: texts(f, "plan", "--no-cache", "--overlong", "foo"),
    "plan: estimate of two sizes": lambda f: texts(
        f, "plan", "--estimate", "--tokens", "5", "--documents", "5"
    ),
    "plan: workers": lambda f: texts(f, "plan", "--estimate", "--workers", "0"),
    "verify: inputs": lambda f: ["verify", f / "packed", "--inputs", f / "b.jsonl",
                                 "--tokenizer", "byte"],
    "verify: tokenizer": lambda f: ["verify", f / "packed", "--inputs", f / "a.jsonl"],
    "report: out": lambda f: ["report", f / "packed", "--out", f / "no" / "page.html"],
    "export: to": lambda f: ["export", f / "packed", "--to", "foo", "--out", f / "out"],
    "stream: state": lambda f: texts(f, "stream", "--batch-size", "1", "--state", f / "no" / "s"),
    "verify-model: attention": lambda f: ["verify-model", f / "model", "--attention", "foo"],
    "verify-model: device": lambda f: ["verify-model", f / "model", "--device", "foo"],
    "verify-model: dtype": lambda f: ["verify-model", f / "model", "--dtype", "foo"],
    "bench-model: data": lambda f: ["bench-model", f / "model", "--data", f / "no"],
    "bench-model: device": lambda f: ["bench-model", f / "model", "--device", "foo"],
}  # fmt: skip


def slow(*_, **__):
    raise AssertionError("slow work has started")


@pytest.mark.parametrize(
    "case",
    [  # torch and transformers take seconds to import
        pytest.param(case, marks=pytest.mark.slow) if "-model" in case else case for case in CASES
    ],
)
def test_a_wrong_option_is_found_before_slow_work(folder, case):
    arguments = CASES[case](folder)
    is_model = case.split(":")[0].endswith("-model")
    names = [name for name in SLOW if is_model == name.startswith("transformers")]
    stack = [patch(name, slow) for name in names]
    for one in stack:
        one.start()
    try:
        done = commands.run(*arguments)
    finally:
        for one in stack:
            one.stop()
    assert done.returncode == 2, done.stdout
    assert "slow work" not in done.stderr and done.stderr.strip(), done.stderr
