"""Killed, disk full, read-only, shared: committed work stays, and the rest has the same bytes."""

from __future__ import annotations

import errno
import gzip
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from quire.corpus import lock, shards
from quire.corpus.engines import local
from quire.corpus.lock import worker_lock
from quire.errors import InvalidDocument, OutputError, WorkerError
from tests.corpus.command import command, run
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.faults.installed import QUIRE
from tests.faults.killing import KillLoop

SIZE = 400


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """More than 20 partitions of a few documents each, one of them bad."""
    return jsonl(tmp_path / "corpus.jsonl", [*texts(150), {"text": None}, *texts(40, seed=1)])


@pytest.fixture
def undisturbed(tmp_path: Path, corpus: Path) -> dict[str, str]:
    pack(corpus, tmp_path / "undisturbed", partition_size=SIZE, max_bad_records=1)
    found = hashes(tmp_path / "undisturbed")
    assert len(found) >= 22
    return found


def arguments(corpus: Path, out: Path, *more: object) -> list[object]:
    fixed = ["pack", corpus, "--out", out, "--tokenizer", "byte", "--max-length", 16]
    return [*fixed, "--partition-size", SIZE, "--max-bad-records", 1, *more]


def test_37_the_installed_command_killed_at_any_point_and_resumed_gives_the_same_bytes(tmp_path):
    """Packing and replanning; for hundreds of kills: python -m tests.faults.killing --kills 300."""
    if not QUIRE.exists():
        pytest.skip("the quire command is not installed beside this Python")
    loop = KillLoop(tmp_path)
    assert max(loop.run(kills=15)) >= 15
    assert min(loop.kills["operation"], loop.kills["moment"]) >= 3
    assert set(loop.chains) == {"rows", "index"}


def _until(true, process, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if true():
            return True
        time.sleep(0.002)
    return False


def test_38_a_committed_shard_with_its_hash_is_kept_and_not_packed_again(
    tmp_path, corpus, undisturbed
):
    out = tmp_path / "out"
    _stop_after(corpus, out, 3)
    stands = {path: path.stat().st_ino for path in out.glob("data/*.parquet")}
    assert len(stands) == 3
    pack(corpus, out, partition_size=SIZE, max_bad_records=1, resume=True)
    assert hashes(out) == undisturbed
    assert {path: path.stat().st_ino for path in stands} == stands


def test_38_a_shard_with_other_bytes_than_were_committed_is_packed_again(
    tmp_path, corpus, undisturbed
):
    out = tmp_path / "out"
    _stop_after(corpus, out, 3)
    damaged = out / "data/shard-00001-000.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    (out / "data/shard-00002-000.parquet").unlink()
    pack(corpus, out, partition_size=SIZE, max_bad_records=1, resume=True)
    assert hashes(out) == undisturbed


def test_38_a_compressed_file_is_continued_after_its_committed_pieces(tmp_path, corpus):
    """One reader divides it while reading; committed parts are read again but not encoded."""
    packed = tmp_path / "corpus.jsonl.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    pack(packed, tmp_path / "undisturbed", partition_size=SIZE, max_bad_records=1)
    assert len(hashes(tmp_path / "undisturbed")) >= 20
    _stop_after(packed, tmp_path / "out", 9)
    encoded = []
    pack(
        packed,
        tmp_path / "out",
        partition_size=SIZE,
        max_bad_records=1,
        resume=True,
        workers=2,
        on_progress=lambda progress: encoded.append(progress.documents),
    )
    assert hashes(tmp_path / "out") == hashes(tmp_path / "undisturbed")
    assert 0 < sum(encoded) < 150


class _Enough(Exception):
    pass


def _stop_after(corpus: Path, out: Path, commits: int) -> None:
    left = [commits]

    def count(progress):
        left[0] -= progress.commit is not None
        if not left[0]:
            raise _Enough

    with pytest.raises(_Enough):
        pack(corpus, out, partition_size=SIZE, max_bad_records=1, on_progress=count)


class _Failing:
    """A file that fails, or writes less than it is given, after some bytes."""

    def __init__(self, file, room: int, code: int) -> None:
        self._file, self._room, self._code = file, room, code

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data) -> int:
        if self._code and self._room <= 0:
            raise OSError(self._code, os.strerror(self._code))
        taken = self._file.write(data[: max(1, self._room)])
        self._room -= taken
        return taken


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_39_a_full_or_failing_disk_is_an_error_and_resumable(
    tmp_path, corpus, undisturbed, monkeypatch, code
):
    real, opened = shards.open_new, []

    def open_new(path):
        opened.append(path)
        return _Failing(real(path), 100, code) if len(opened) == 3 else real(path)

    monkeypatch.setattr(shards, "open_new", open_new)
    with pytest.raises(OutputError, match=f"{os.strerror(code)}.*then resume"):
        pack(corpus, tmp_path / "out", partition_size=SIZE, max_bad_records=1)
    assert not list((tmp_path / "out").rglob(".*.tmp")), "no temporary file is left"
    pack(corpus, tmp_path / "out", partition_size=SIZE, max_bad_records=1, resume=True)
    assert hashes(tmp_path / "out") == undisturbed


def test_39_a_failing_sync_is_an_error_and_resumable(tmp_path, corpus, undisturbed, monkeypatch):
    real, calls = os.fsync, []

    def sync(descriptor):
        calls.append(descriptor)
        if len(calls) == 10:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OutputError, match="Input/output error"):
        pack(corpus, tmp_path / "out", partition_size=SIZE, max_bad_records=1)
    pack(corpus, tmp_path / "out", partition_size=SIZE, max_bad_records=1, resume=True)
    assert hashes(tmp_path / "out") == undisturbed


def test_39_short_writes_are_continued(tmp_path, corpus, undisturbed, monkeypatch):
    real = shards.open_new
    monkeypatch.setattr(shards, "open_new", lambda path: _Failing(real(path), 7, 0))
    pack(corpus, tmp_path / "out", partition_size=SIZE, max_bad_records=1)
    assert hashes(tmp_path / "out") == undisturbed


def test_40_a_read_only_output_is_an_error_before_any_work(tmp_path, corpus, monkeypatch):
    (tmp_path / "out").mkdir(mode=0o555)
    # The superuser may write anywhere, so what a plain user is told is put in its place.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "out")
    started = []
    with pytest.raises(OutputError, match="is read-only for this user"):
        pack(corpus, tmp_path / "out", on_start=started.append)
    assert not started
    assert not list((tmp_path / "out").iterdir())


def test_40_a_lock_that_cannot_be_made_is_an_error(tmp_path, corpus, monkeypatch):
    real = os.open

    def refuse(path, *arguments, **keywords):
        if str(path).endswith("writer"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OutputError, match="No space left on device"):
        pack(corpus, tmp_path / "out")


def test_41_temporary_files_of_stopped_workers_are_removed(tmp_path, corpus):
    def leave_and_stop(progress):
        if progress.commit is None:
            return  # without a shard, all would be taken away
        (tmp_path / "out" / "data" / ".shard-00009-000.parquet.1.tmp").write_bytes(b"half")
        raise _Enough

    with pytest.raises(_Enough):
        pack(
            corpus,
            tmp_path / "out",
            partition_size=SIZE,
            max_bad_records=1,
            on_progress=leave_and_stop,
        )
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == 1
    assert not list((tmp_path / "out").rglob(".*.tmp"))


def test_40_a_file_in_the_place_of_the_output_is_an_error(tmp_path, corpus):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputError, match="Not a directory"):
        pack(corpus, tmp_path / "out")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("workers", [1, 2])
def test_41_a_signal_leaves_a_resumable_output(
    tmp_path, corpus, undisturbed, number, code, workers
):
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(*arguments(corpus, out, "--workers", workers), before=_SLOW),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert _until(lambda: len(list(out.glob("data/*.parquet"))) >= 2, process)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code, error
    assert "run the same command with --resume" in error
    assert "Traceback" not in error
    assert not list(out.rglob(".*.tmp"))
    assert not (out / "manifest.json").exists()
    pack(corpus, out, partition_size=SIZE, max_bad_records=1, resume=True)
    assert hashes(out) == undisturbed


_SLOW = """
import time
from quire.corpus import pack
real = pack._Run._record
def record(self, progress):
    real(self, progress)
    time.sleep(0.05)
pack._Run._record = record
"""


def test_42_a_worker_that_is_killed_is_replaced(tmp_path, corpus, undisturbed):
    killed = []

    def kill_one(progress):
        if progress.commit is not None and len(killed) < 2:
            child = random.Random(len(killed)).choice(_children())
            os.kill(child, signal.SIGKILL)
            killed.append(child)

    pack(
        corpus,
        tmp_path / "out",
        partition_size=SIZE,
        max_bad_records=1,
        workers=2,
        on_progress=kill_one,
    )
    assert len(killed) == 2
    assert hashes(tmp_path / "out") == undisturbed


def _children() -> list[int]:
    import multiprocessing

    return [process.pid for process in multiprocessing.active_children()]


class DeadlyTokenizer:
    """Ends its process at a certain text, as an out-of-memory killer would."""

    bos_token_id = eos_token_id = pad_token_id = None
    vocab_size = 10

    def __init__(self, deadly: str, error: str = "") -> None:
        self.deadly, self.error = deadly, error

    def __call__(self, texts, **_):
        if self.deadly in texts:
            if self.error:
                raise RuntimeError(self.error)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"input_ids": [[5] * len(text) for text in texts]}


def test_42_a_partition_that_kills_every_worker_is_an_error_not_a_hang(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["a", "b", "deadly", "c"])
    with pytest.raises(WorkerError, match="3 workers died on partition 0, the last with SIGKILL"):
        pack(path, tmp_path / "out", DeadlyTokenizer("deadly"), workers=2)


class OnceDeadlyTokenizer(DeadlyTokenizer):
    """Ends the first process that reaches a certain text, in the middle of a partition."""

    def __init__(self, deadly: str, mark: Path) -> None:
        super().__init__(deadly)
        self.mark = mark

    def __call__(self, texts, **_):
        if not self.mark.exists() and self.deadly in texts:
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"input_ids": [[5] * len(text) for text in texts]}


def test_42_a_partition_whose_worker_dies_is_packed_by_another(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [*texts(60), "deadly"])
    tokenizer = OnceDeadlyTokenizer("deadly", tmp_path / "mark")
    pack(path, tmp_path / "out", tokenizer, workers=2, partition_size=SIZE)
    assert tokenizer.mark.exists()
    pack(path, tmp_path / "undisturbed", tokenizer, partition_size=SIZE)
    assert hashes(tmp_path / "out") == hashes(tmp_path / "undisturbed")


@pytest.mark.parametrize("workers", [1, 2])
def test_43_a_failing_tokenizer_is_shown_with_its_traceback_and_record(tmp_path, workers):
    path = jsonl(tmp_path / "a.jsonl", ["a", "b", "wrong", "c"])
    tokenizer = DeadlyTokenizer("wrong", error="boom")
    with pytest.raises(InvalidDocument, match=r"record 2 cannot be .*RuntimeError: boom") as caught:
        pack(path, tmp_path / "out", tokenizer, workers=workers)
    trace = "".join(getattr(caught.value, "__notes__", []))
    if workers == 2:
        assert "in __call__" in trace
    else:
        assert isinstance(caught.value.__cause__, RuntimeError)


def test_39_a_worker_that_cannot_lock_says_that_the_output_fails(tmp_path, corpus):
    """Fault 39: the error is not that workers died."""
    unlockable = """
import os
from multiprocessing import parent_process
real = os.open
def refuse(path, *arguments, **keywords):
    if str(path).endswith("workers") and parent_process() is not None:
        raise OSError(5, os.strerror(5))
    return real(path, *arguments, **keywords)
os.open = refuse
"""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(unlockable)
    places = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    done = run(*arguments(corpus, tmp_path / "out", "--workers", 2), PYTHONPATH=places)
    assert done.returncode == 2
    assert "out cannot be written: Input/output error; committed shards are kept" in done.stderr
    assert "Traceback" not in done.stderr


def test_43_an_unknown_error_in_a_worker_keeps_its_traceback(tmp_path, corpus):
    class Odd(ValueError):
        def __init__(self, one, two):
            super().__init__(one)

    from quire.corpus.partitions import Partition

    try:
        raise Odd("strange", 2)
    except Odd as error:
        known = local._with_traceback(error, Partition(number=7, spans=()))
    assert isinstance(known, WorkerError)
    assert "partition 7 failed with Odd: strange" in str(known)
    assert 'raise Odd("strange", 2)' in known.__notes__[0]


def test_44_a_second_writer_is_refused_and_does_not_affect_the_first(tmp_path, corpus, undisturbed):
    refused = []

    def second(progress):
        if not refused:
            with pytest.raises(OutputError, match="is being written by another process") as error:
                pack(corpus, tmp_path / "out", partition_size=SIZE, resume=True)
            refused.append(error)

    pack(corpus, tmp_path / "out", partition_size=SIZE, max_bad_records=1, on_progress=second)
    assert refused
    assert hashes(tmp_path / "out") == undisturbed


DIES = """
from tests.faults.layer import Fault, install
install(Fault(disk={out!r}, journal={journal!r}, at=50))
"""


def test_44_the_lock_of_a_dead_writer_is_taken_over(tmp_path, corpus, undisturbed):
    out = tmp_path / "out"
    done = run(
        *arguments(corpus, out),
        before=DIES.format(out=str(out), journal=str(tmp_path)),
    )
    assert done.returncode == -signal.SIGKILL
    assert (out / ".quire" / "writer").exists()
    pack(corpus, out, partition_size=SIZE, max_bad_records=1, resume=True)
    assert hashes(out) == undisturbed


def test_44_workers_of_a_dead_writer_are_waited_for(tmp_path, corpus, monkeypatch):
    (tmp_path / "out" / ".quire").mkdir(parents=True)
    waits, started = threading.Event(), threading.Event()
    real = time.sleep

    def sleep(seconds: float) -> None:
        waits.set()
        real(seconds)

    monkeypatch.setattr(lock.time, "sleep", sleep)
    with worker_lock(tmp_path / "out" / ".quire"):
        thread = threading.Thread(
            target=lambda: pack(
                corpus,
                tmp_path / "out",
                max_bad_records=1,
                resume=True,
                on_start=lambda start: started.set(),
            )
        )
        thread.start()
        while not waits.wait(0.05) and not started.is_set():
            assert thread.is_alive()
        assert not started.is_set()
    assert started.wait(30)
    thread.join()


@pytest.mark.parametrize(
    ("environment", "note"),
    [
        ({"PYTHONHASHSEED": "1"}, "hash seed"),
        ({"PYTHONHASHSEED": "2", "LC_ALL": "C", "PYTHONUTF8": "0"}, "locale"),
        ({"TZ": "Asia/Tokyo", "LC_ALL": "tr_TR.UTF-8"}, "time zone"),
    ],
)
def test_46_hash_seed_locale_and_time_zone_do_not_matter(
    tmp_path, corpus, undisturbed, environment, note
):
    done = run(*arguments(corpus, tmp_path / "out"), **environment)
    assert done.returncode == 0, done.stderr
    assert hashes(tmp_path / "out") == undisturbed, note


def test_46_the_order_of_the_directory_does_not_matter(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for name in "dacb":
        jsonl(tmp_path / "in" / f"{name}.jsonl", [name * 3])
    pack(tmp_path / "in", tmp_path / "one")
    real = os.scandir

    class Reversed:
        def __init__(self, *path):
            with real(*path) as entries:
                self._entries = list(entries)[::-1]

        def __enter__(self):
            return iter(self._entries)

        def __exit__(self, *error):
            return None

        def __iter__(self):
            return iter(self._entries)

        def close(self):
            pass

    monkeypatch.setattr(os, "scandir", Reversed)
    pack(tmp_path / "in", tmp_path / "two")
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_length": 32}, r"options\.max_length is 16 there and 32 here"),
        ({"strategy": "wrapped"}, r"options\.strategy is 'exact_fit' there and 'wrapped' here"),
        ({"partition_size": 500}, r"options\.partition_size is 400 there and 500 here"),
        ({"tokenizer": DeadlyTokenizer("")}, r"tokenizer\.kind is 'byte' there"),
    ],
)
@pytest.mark.parametrize("complete", [False, True])
def test_30_31_other_options_or_another_tokenizer_are_refused_on_resume(
    tmp_path, corpus, change, field, complete
):
    out = tmp_path / "out"
    if complete:
        pack(corpus, out, partition_size=SIZE, max_bad_records=1)
    else:
        _stop_after(corpus, out, 2)
    before = hashes(out)
    options = {"partition_size": SIZE, "max_bad_records": 1, "tokenizer": "byte", **change}
    with pytest.raises(OutputError, match=field):
        pack(corpus, out, resume=True, **options)
    after = hashes(out)
    assert {name: after[name] for name in after if "quire/w" not in name} == {
        name: before[name] for name in before if "quire/w" not in name
    }


def test_23_other_inputs_are_refused_on_resume(tmp_path, corpus):
    _stop_after(corpus, tmp_path / "out", 2)
    data = corpus.read_bytes()
    corpus.write_bytes(data.replace(b"quire", b"QUIRE", 1))
    with pytest.raises(OutputError, match=r"inputs\[0\]\.fingerprint is '.*' there and"):
        pack(corpus, tmp_path / "out", partition_size=SIZE, max_bad_records=1, resume=True)
    corpus.write_bytes(data)
    jsonl(tmp_path / "more.jsonl", ["a"])
    with pytest.raises(OutputError, match="inputs has 1 entries there and 2 here"):
        pack(
            [corpus, tmp_path / "more.jsonl"],
            tmp_path / "out",
            partition_size=SIZE,
            max_bad_records=1,
            resume=True,
        )
