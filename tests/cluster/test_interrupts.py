"""The installed command on a cluster: interrupted, it says so, and resumes to the same bytes."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from tests.corpus.command import command
from tests.corpus.corpora import hashes


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_fault_41_an_interrupted_command_ends_with_its_code_and_is_resumed(
    cluster, corpora, tmp_path, number, code
):
    """Ray installs its own SIGTERM handler, which must not replace ours."""
    corpus, undisturbed = corpora("lines")
    out = tmp_path / "out"
    words = ["pack", corpus.folder, "--out", out, "--tokenizer", "byte", "--max-length", 128]
    words += ["--partition-size", 4000, "--engine", "ray", "--ray-address", cluster.address]
    words += ["--resume"]
    running = _start([*words, "--workers", 1], before=SLOW)
    _wait_for_a_shard(out, running)
    running.send_signal(number)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == code, said
    assert "stopped; what is committed stays" in said
    assert not (out / "manifest.json").exists()
    assert not list(out.rglob(".*.tmp")), "no task is left that writes"
    again = _start(words)
    said = again.communicate(timeout=120)[1]
    assert again.returncode == 0, said
    assert "resuming: " in said
    assert hashes(out) == undisturbed


SLOW = """
import time
from quire.cli.progress import PackProgress
advance = PackProgress.advance
def slowly(display, step):
    advance(display, step)
    time.sleep(0.05)
PackProgress.advance = slowly
"""
"""The driver runs slowly, so that there is time to interrupt it."""


def _start(words: list[object], before: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*words, before=before), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _wait_for_a_shard(out, running) -> None:
    deadline = time.monotonic() + 60
    while not any(out.glob("data/*.parquet")):
        assert running.poll() is None, running.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
