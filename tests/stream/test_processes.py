"""Fresh processes: killed at any moment, a run goes on from its last state as if it never was."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quire.stream import open_stream
from tests.stream.inputs import (
    LENGTHS,
    key,
    shards_of,
    take,
    unique_documents,
    write_jsonl,
    write_parquet,
)

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import hashlib, json, sys, time
from pathlib import Path
from quire.stream import load_state, open_stream, save_state
from tests.stream.inputs import Numbers, key, take

if __name__ == "__main__":
    config, state, log, count = sys.argv[1:]
    with open_stream(json.loads(config)) as stream:
        if Path(state).exists():
            stream.set_state(load_state(state))
        while stream.stats()["step"] < int(count):
            batch = next(stream)
            digest = hashlib.sha256(repr(key(batch)).encode()).hexdigest()
            with open(log, "a") as file:
                step = stream.get_state()["step"]
                file.write(json.dumps([step, digest]) + chr(10))
            save_state(stream.get_state(), state)
            time.sleep(0.01)
"""


def digest(batch):
    return hashlib.sha256(repr(key(batch)).encode()).hexdigest()


def plain(folder, kind, **data):
    files = {"backend": "files", "files": [str(folder / f"part-*.{kind}")]}
    return {
        "data": {
            **files,
            "tokenizer": {"kind": "byte"},
            "shuffle_buffer_size": 6,
            "grain_prefetch": 3,
            "packing_buffer_docs": 6,
            **data,
        },
        "train": {"seq_len": 16, "batch_size": 2},
    }


def start(options, state, log, count, **environment):
    command = [sys.executable, "-c", RUN, json.dumps(options), str(state), str(log), str(count)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment})


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("jsonl", {"packing_mode": "online"}),
        ("parquet", {"packing_mode": "bin"}),
        ("jsonl", {"packing_mode": "sequential", "num_workers": 1}),
    ],
)
def test_a_run_that_is_killed_again_and_again_gives_the_undisturbed_batches(tmp_path, kind, data):
    shards = shards_of(unique_documents(LENGTHS * 4), 3)
    write_jsonl(tmp_path, shards)
    write_parquet(tmp_path, shards)
    options = plain(tmp_path, kind, **data)
    with open_stream({**options, "data": {**options["data"], "num_workers": 0}}) as stream:
        expected = [digest(batch) for batch in take(stream, 45)]
    state, log = tmp_path / "state.json", tmp_path / "log"
    for target in (8, 20, 32):
        process = start(options, state, log, 45)
        try:
            wait_for_step(log, target, process)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert start(options, state, log, 45).wait() == 0
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    assert {step for step, _ in seen} == set(range(1, 46))
    assert all(expected[step - 1] == found for step, found in seen)


def children_of(pid):
    """Processes that any thread of this one started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for children in lists for child in children.read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts processes in /proc")
def test_the_workers_of_a_killed_run_end_with_it(tmp_path):
    write_jsonl(tmp_path, shards_of(unique_documents(LENGTHS), 3))
    options = plain(tmp_path, "jsonl", num_workers=2)
    process = start(options, tmp_path / "state.json", tmp_path / "log", 10_000)
    try:
        wait_for_step(tmp_path / "log", 2, process)
        workers = children_of(process.pid)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert len(workers) >= 2
    deadline = time.monotonic() + 30
    while any(is_running(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_running(worker) for worker in workers)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, and nobody there to take note


def wait_for_step(log, step, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        lines = log.read_text().splitlines() if log.exists() else []
        if any(json.loads(line)[0] >= step for line in lines if line.endswith("]")):
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not reached; exit code {process.poll()}")


def test_hash_seed_and_locale_change_no_batch(tmp_path):
    write_jsonl(tmp_path, shards_of(unique_documents(LENGTHS), 3))
    options = plain(tmp_path, "jsonl", packing_mode="online")
    logs = []
    for number, environment in enumerate(
        ({"PYTHONHASHSEED": "1", "LC_ALL": "C"}, {"PYTHONHASHSEED": "2", "LC_ALL": "C.UTF-8"})
    ):
        log = tmp_path / f"log{number}"
        assert start(options, tmp_path / f"state{number}", log, 15, **environment).wait() == 0
        logs.append((log.read_text(), (tmp_path / f"state{number}").read_text()))
    assert logs[0] == logs[1]
