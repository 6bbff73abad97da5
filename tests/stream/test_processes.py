"""New processes: killed at any moment, a run continues exactly from its last state."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from quire.stream import open_stream
from tests.stream.inputs import (
    LENGTHS,
    digest,
    shards_of,
    take,
    text_of,
    unique_documents,
    write_jsonl,
    write_parquet,
)

ROOT = Path(__file__).resolve().parents[2]
RUN = """
import json, sys, threading, time
from pathlib import Path
import quire.stream
from tests.stream.inputs import digest

if __name__ == "__main__":
    config, state, log, count = sys.argv[1:]
    with quire.stream.open_stream(json.loads(config)) as stream:
        if Path(state).exists():
            stream.set_state(quire.stream.load(state))
        while stream.stats()["step"] < int(count):
            batch = next(stream)
            ahead = any(thread.name == "quire-prefetch" for thread in threading.enumerate())
            with open(log, "a") as file:
                step = stream.get_state()["step"]
                file.write(json.dumps([step, digest(batch), ahead]) + chr(10))
            quire.stream.save(stream.get_state(), state)
            time.sleep(0.01)
"""


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


SHARDS = shards_of(unique_documents(LENGTHS * 4), 3)


def write_all(folder):
    """The same documents in every form that a source has."""
    write_jsonl(folder, SHARDS)
    write_parquet(folder, SHARDS)
    for number, documents in enumerate(SHARDS):
        lines = (folder / f"part-{number}.jsonl").read_bytes()
        (folder / f"part-{number}.jsonl.gz").write_bytes(gzip.compress(lines))
        packed = pa.Codec("zstd").compress(lines, asbytes=True)
        (folder / f"part-{number}.jsonl.zst").write_bytes(packed)
        for place, document in enumerate(documents[:9]):
            text = text_of(document)
            (folder / f"part-{number}-{place}.txt").write_text(text)
            packed = gzip.compress(text.encode())
            (folder / f"part-{number}-{place}.txt.gz").write_bytes(packed)


def of_hub(folder):
    files = [str(folder / f"part-{number}.jsonl") for number in range(3)]
    return {"backend": "hf", "files": [], "hf_dataset": "json", "hf_data_files": files}


def mixture(folder):
    kinds = {"jsonl": 0.5, "parquet": 0.3, "txt.gz": 0.2}
    sources = [
        {"backend": "files", "files": [str(folder / f"part-*.{kind}")], "weight": weight}
        for kind, weight in kinds.items()
    ]
    return {"files": [], "sources": sources}


LOCAL = {"files": [], "backend": "local_text", "local_text": "a text that comes again and again"}
KILLED = {
    "jsonl": ("jsonl", {"packing_mode": "online"}),
    "jsonl.gz": ("jsonl.gz", {"packing_mode": "bin"}),
    "jsonl.zst, workers": ("jsonl.zst", {"packing_mode": "online", "num_workers": 2}),
    "parquet": ("parquet", {"packing_mode": "bin", "shuffle": False}),
    "text": ("txt", {"packing_mode": "online"}),
    "text.gz": ("txt.gz", {"packing_mode": "sequential"}),
    "datasets": (of_hub, {"packing_mode": "bin"}),
    "local_text": (LOCAL, {"packing_mode": "sequential"}),
    "mixture": (mixture, {"packing_mode": "online"}),
    "mixture, workers": (mixture, {"packing_mode": "bin", "num_workers": 2}),
}


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_and_resumed_run_delivers_the_undisturbed_batches(tmp_path, name, monkeypatch):
    """SIGKILL while batches are prefetched; the next process continues from the file."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    source, data = KILLED[name]
    write_all(tmp_path)
    more = source(tmp_path) if callable(source) else source if isinstance(source, dict) else {}
    options = plain(tmp_path, source, **{"grain_prefetch": 2, **data, **more})
    kill_at = (8, 20, 32) if name == "jsonl" else (15,)
    expected, seen = killed_and_resumed(tmp_path, options, kill_at, count=45)
    steps = [step for step, *_ in seen]
    assert steps == sorted(steps), "a run started over instead of resuming"
    assert set(steps) == set(range(1, 46))
    assert all(expected[step - 1] == found for step, found, _ in seen)
    assert all(ahead for *_, ahead in seen)


def killed_and_resumed(folder, options, kill_at, count):
    """The digests of an undisturbed run, and those logged by killed runs and the last one."""
    data = {**options["data"], "num_workers": 0}
    if "hf_dataset" in data:  # the same files, without the seconds that `datasets` takes
        data = {**data, "backend": "files", "hf_dataset": None, "files": data["hf_data_files"]}
    with open_stream({**options, "data": data}) as stream:
        expected = [digest(batch) for batch in take(stream, count)]
    state, log = folder / "state.json", folder / "log"
    for target in kill_at:
        process = start(options, state, log, count)
        try:
            wait_for_step(log, target, process)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert start(options, state, log, count).wait() == 0
    return expected, [json.loads(line) for line in log.read_text().splitlines()]


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


def test_hash_seed_and_locale_do_not_change_batches(tmp_path):
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
