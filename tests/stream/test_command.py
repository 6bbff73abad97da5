"""`quire stream`: runs, stops, resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from quire.cli.stream import stream
from quire.errors import InvalidOption, InvalidState, OutputError
from quire.stream import load_state, open_stream
from tests.stream.inputs import take

CONFIG = """
data:
  backend: files
  files: ["{folder}/*.jsonl"]
  packing_mode: online
  shuffle_buffer_size: 8
  tokenizer: {{kind: byte}}
train: {{seq_len: 32, batch_size: 2}}
"""
app = typer.Typer()
app.command()(stream)


@pytest.fixture
def config(tmp_path):
    lines = [json.dumps({"text": "word " * (1 + number % 7)}) for number in range(50)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    file = tmp_path / "stream.yaml"
    file.write_text(CONFIG.format(folder=tmp_path))
    return file


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_shows_throughput_and_utilization(config):
    result = run("--config", config, "--batches", 5)
    assert result.exit_code == 0
    assert "step 5, epoch" in result.stdout
    assert "tokens/s" in result.stdout
    assert "% full" in result.stdout


def test_ignored_keys_of_the_training_run_are_named_in_one_line(config):
    config.write_text(config.read_text() + "optim: {lr: 0.1}\n")
    result = run("--config", config, "--batches", 1, "--override", "train.steps=10")
    assert result.exit_code == 0
    assert result.stderr == "warning the config has keys that are ignored: train.steps, optim\n"


def test_stats_are_json_with_the_ledger(config):
    result = run("--config", config, "--batches", 3, "--stats")
    report = json.loads(result.stdout)
    assert report["step"] == 3
    assert 0 < report["utilization"] <= 1
    assert report["ledger"]["documents"]["input"] > 0


def test_the_command_resumes_from_its_state(config, tmp_path):
    state = tmp_path / "state.json"
    for _ in range(3):
        assert run("--config", config, "--batches", 2, "--state", state).exit_code == 0
    with open_stream(config) as undisturbed:
        take(undisturbed, 6)
        assert load_state(state) == json.loads(json.dumps(undisturbed.get_state()))


def test_a_state_that_could_not_be_saved_is_refused_before_any_work(config, tmp_path, monkeypatch):
    """Fault 40."""
    monkeypatch.setattr("quire.cli.stream.open_stream", None)
    result = run("--config", str(config), "--state", str(tmp_path / "none" / "state.json"))
    assert isinstance(result.exception, OutputError)
    assert "there is no folder" in str(result.exception)
    forbidding = SimpleNamespace(access=lambda *_: False, W_OK=os.W_OK, X_OK=os.X_OK)
    monkeypatch.setattr("quire.cli.console.os", forbidding)
    result = run("--config", str(config), "--state", str(tmp_path / "state.json"))
    assert "is read-only" in str(result.exception)


def test_the_command_ends_when_its_stream_ends(config):
    result = run("--config", config, "--override", "data.repeat=false", "--stats")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["ledger"]["documents"]["emitted"] == 50


def test_a_wrong_override_is_refused_with_the_nearest_name(config):
    result = run("--config", config, "--override", "data.sed=1")
    assert isinstance(result.exception, InvalidOption)
    assert "did you mean data.seed?" in str(result.exception)


SIGNALLED = """
import typer
import quire.cli.stream as command

opened = command.open_stream

def open_stream(**options):
    stream = opened(**options)
    print("open", flush=True)
    return stream

command.open_stream = open_stream
typer.run(command.stream)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_saves_its_state(config, tmp_path, number, code):
    state = tmp_path / "state.json"
    arguments = ["--config", str(config), "--state", str(state), "--override", "data.seed=3"]
    process = subprocess.Popen(
        [sys.executable, "-c", SIGNALLED, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "open\n"
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert "tokens/s" in output
    saved = load_state(state)
    assert saved["options"]["seed"] == 3
    with open_stream(config) as other, pytest.raises(InvalidState, match=r"data\.seed \(saved 3"):
        other.set_state(saved)


def test_files_and_options_give_the_counts_of_the_same_config(config, tmp_path):
    named = run("--config", config, "--batches", 3, "--stats")
    given = run(
        *(f"{tmp_path}/*.jsonl", "--tokenizer", "byte", "--max-length", 32, "--batch-size", 2),
        *("--strategy", "online", "--shuffle-buffer-size", 8, "--no-add-bos"),
        *("--batches", 3, "--stats"),
    )
    assert given.exit_code == 0
    assert json.loads(given.stdout)["ledger"] == json.loads(named.stdout)["ledger"]


def test_a_config_and_options_are_an_error(config):
    result = run("--config", config, "--max-length", 8)
    assert "there are --config and max_length; give one or the other" in str(result.exception)
    result = run("a.jsonl", "--override", "data.seed=1")
    assert "--override changes a config; add --config" in str(result.exception)
