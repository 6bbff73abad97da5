"""Exit code 1 is a verdict: not whole, or not isolated. Every error is 2, every interrupt 130."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

import quire
from quire.cli import app
from tests.commands import run

COMMANDS = re.findall(r"^  ([a-z][a-z-]*)  ", run("--help").stdout, flags=re.MULTILINE)
MISUSES = {
    "demo": ["--corpus", "nowhere"],
    "inspect": ["nowhere"],
    "pack": ["nowhere.jsonl", "--out", "out", "--tokenizer", "byte", "--max-length", 16],
    "plan": ["nowhere.jsonl", "--tokenizer", "byte"],
    "replan": ["nowhere"],
    "report": ["nowhere"],
    "stream": ["--config", "nowhere.yaml"],
    "verify": ["nowhere"],
    "export": ["nowhere", "--to", "megatron", "--out", "nowhere-else"],
    "bench-model": ["nowhere"],
    "verify-model": ["nowhere"],
}


@pytest.fixture
def packed(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "alpha"}\n{"text": "beta"}\n')
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "packed", "byte", max_length=64)
    return tmp_path / "packed"


def test_every_command_is_tried_here():
    assert sorted(MISUSES) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option_and_a_missing_input_are_2(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(command, "--no-such-option").returncode == 2
    done = run(command, *MISUSES[command])
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error ")
    assert "Traceback" not in done.stderr
    assert run("--debug", command, *MISUSES[command]).returncode == 2


def test_no_command_and_an_unknown_one_are_2():
    assert run("no-such-command").returncode == 2
    assert run().returncode == 2


def test_verify_exits_with_1_for_damage_and_2_for_what_it_cannot_check(packed, tmp_path):
    assert run("verify", packed).returncode == 0
    (shard,) = packed.glob("data/*.parquet")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert run("verify", packed).returncode == 1
    assert run("verify", tmp_path).returncode == 2


def raising(error: BaseException):
    def raise_it(*_: object, **__: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (KeyboardInterrupt(), 130, ""),
        (RuntimeError("oh"), 2, "error unexpected RuntimeError; please report it"),
        (EOFError("Compressed file ended"), 2, "error a file ends too early: Compressed file"),
    ],
)
def test_no_error_of_a_command_exits_with_1(monkeypatch, packed, error, code, shown):
    monkeypatch.setattr("quire.view.open_rows", raising(error))
    done = run("inspect", packed)
    assert done.returncode == code
    assert shown in done.stderr
    assert ("Traceback" in done.stderr) == isinstance(error, RuntimeError)


def test_the_help_says_what_exit_codes_mean():
    shown = " ".join(run("--help").stdout.split())
    assert "Exit codes: 0 success; 1 only from verify, verify-model and demo" in shown
    assert app._EXIT_CODES.startswith("Exit codes: 0 success; 1 only")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["inspect"], ["--help"]])
def test_a_closed_output_pipe_is_141_and_prints_nothing(packed, words):
    more = [packed] if words == ["inspect"] else []
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "quire", *words, *more],
        stdout=writing, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_importing_quire_itself_imports_nothing_else():
    """So that an interrupt while the command is imported meets the code that handles it."""
    code = "import sys, quire.__main__; print({'numpy', 'typer', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


INTERRUPTED = """
import importlib.abc, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "quire.cli":
            print("importing", flush=True)

sys.meta_path.insert(0, Finder())
sys.argv = ["quire", "--help"]
"""
STARTS = {
    "command": "from quire.__main__ import main; main()",
    "module": "import runpy; runpy.run_module('quire', run_name='__main__', alter_sys=True)",
}


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.3])
def test_an_interrupt_while_the_command_starts_ends_it_quietly(start, delay):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED + STARTS[start]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "importing\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said == ""
    # Later it may have ended, or be ending, when Python has put back the default of the signal.
    assert process.returncode in ([130] if not delay else [130, 0, -signal.SIGINT])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-length", "0"], "'--max-length': '0'; input should be greater than or equal to 1"),
        (["--max-length", "abc"], "'--max-length': 'abc'; input should be a valid integer"),
        (
            ["--max-length", "8", "--overlong", "cut"],
            "'--overlong': 'cut' is not one of 'split', 'truncate'",
        ),
    ],
)
def test_a_wrong_value_of_an_option_is_named(options, message):
    done = run("pack", "a.jsonl", "--out", "out", "--tokenizer", "byte", *options)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_inspect_refuses_a_start_beyond_the_last_row(packed):
    done = run("inspect", packed, "--start", 5)
    assert done.returncode == 2
    assert "--start is 5 but this packed dataset has 1 row, numbered from 0" in done.stderr
