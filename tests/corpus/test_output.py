"""The output folder: locks, what is swept, and the text of every error."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path

import fsspec
import pytest

from quire.corpus.output import (
    clear_work,
    discard_empty_run,
    opened_output,
    require_apart,
    require_complete,
    require_no_shards,
    sweep,
    sweep_plans,
    write_errors,
)
from quire.errors import InvalidOption, OutputError, StorageError
from quire.options.names import command_words
from quire.storage import as_path

NUMBERS = itertools.count()


@pytest.fixture
def remote():
    """A folder in a store that has temporary files."""
    root = f"/outputs-{next(NUMBERS)}"
    yield as_path(f"memory:/{root}/out")
    if fsspec.filesystem("memory").exists(root):
        fsspec.filesystem("memory").rm(root, recursive=True)


def put(path, data=b"x"):
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    else:
        fsspec.filesystem("memory").pipe(path.key, data)


def files(out) -> list[str]:
    return sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())


@pytest.fixture(params=["disk", "store"])
def out(request, tmp_path, remote):
    return tmp_path / "out" if request.param == "disk" else remote


def test_a_new_output_has_a_work_folder_and_an_unused_one_leaves_nothing(out):
    with opened_output(out, resume=False) as work:
        assert work == out / ".quire"
    assert not out.exists()


def test_written_files_are_kept_and_temporary_ones_are_removed(out):
    with opened_output(out, resume=False) as work:
        put(work / "run.json")
        for name in (".run.json.1.tmp", "data/.a.1.tmp", ".quire/.a.1.tmp", "plans/.a.1.tmp"):
            put(out / name)
    with opened_output(out, resume=True) as work:
        assert [name for name in files(out) if name.endswith(".tmp")] == []
        assert (work / "run.json").is_file()


def test_an_empty_folder_that_existed_before_is_kept(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="broken"), opened_output(tmp_path / "out", resume=False):
        raise ValueError("broken")
    assert (tmp_path / "out").is_dir()


@pytest.mark.parametrize(
    ("there", "resume", "message"),
    [
        (
            ["manifest.json"],
            False,
            "{} already holds a packed dataset; continue an unfinished run with resume, or choose "
            "a new output",
        ),
        (
            ["manifest.json", ".quire/run.json"],
            False,
            "{} is not empty; continue an unfinished run with resume, or choose a new output",
        ),
        (
            ["a.txt"],
            False,
            "{} is not empty; continue an unfinished run with resume, or choose a new output",
        ),
        (
            ["d", "c", "b", "a"],
            True,
            "{} holds files (a, b, c) but no run of quire to resume; choose a new output",
        ),
    ],
)
def test_an_output_with_other_files_is_refused_and_not_changed(out, there, resume, message):
    for name in there:
        put(out / name)
    with pytest.raises(OutputError) as raised, opened_output(out, resume=resume):
        pass
    assert str(raised.value) == message.format(out)
    assert files(out) == sorted(there)


def test_the_command_is_told_to_resume_in_its_own_words(out):
    put(out / "a.txt")
    said = pytest.raises(OutputError, match="an unfinished run with --resume, or")
    with command_words(), said, opened_output(out, resume=False):
        pass


@pytest.mark.parametrize("there", [["manifest.json"], [".quire/run.json"], []])
def test_resume_accepts_an_unfinished_run_and_an_empty_folder(out, there):
    for name in there:
        put(out / name)
    with opened_output(out, resume=True):
        assert set(there) <= set(files(out))


def test_40_a_read_only_output_is_an_error(tmp_path, monkeypatch):
    """Fault 40."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK | os.X_OK)
    out = tmp_path / "out"
    with pytest.raises(OutputError) as raised, opened_output(out, resume=False):
        pass
    assert str(raised.value) == f"{out} is read-only for this user; choose another output"


# Errors of writing


def test_39_errors_of_the_disk_say_what_to_do():
    """Fault 39."""
    for error, words in [
        (OSError(errno.ENOSPC, "No space left"), "No space left"),
        (OSError("torn"), "torn"),
    ]:
        with pytest.raises(OutputError) as raised, write_errors(Path("out")):
            raise error
        assert str(raised.value) == (
            f"out cannot be written: {words}; committed shards are kept: fix the cause, then resume"
        )
        assert raised.value.__cause__ is error


def test_39_errors_of_a_store_say_what_to_do():
    """Fault 39."""
    with pytest.raises(OutputError) as raised, write_errors(as_path("memory://a/out")):
        raise StorageError("memory://a/out: the store failed\nlook at it")
    assert str(raised.value) == (
        "memory://a/out: the store failed; committed shards are kept\nlook at it; then resume"
    )


def test_other_errors_are_raised_unchanged():
    with pytest.raises(ValueError, match="broken"), write_errors(Path("out")):
        raise ValueError("broken")


# Apart from the inputs


def test_an_output_inside_an_input_is_refused(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.jsonl").touch()
    with pytest.raises(InvalidOption) as raised:
        require_apart([tmp_path / "elsewhere", tmp_path / "corpus"], tmp_path / "corpus" / "out")
    assert str(raised.value) == (
        f"the output {tmp_path / 'corpus' / 'out'} is inside the input {tmp_path / 'corpus'}; "
        "choose another"
    )
    with pytest.raises(
        InvalidOption, match="is inside the input memory://a/corpus; choose another"
    ):
        require_apart(["memory://a/corpus"], as_path("memory://a/corpus/out"))


def test_an_output_next_to_its_inputs_is_accepted(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "a.jsonl").touch()
    inputs = [tmp_path / "corpus", tmp_path / "a.jsonl", "memory://a/corpus"]
    require_apart(inputs, tmp_path / "corpus-out")
    require_apart(inputs, as_path("memory://a/corpus-out"))


# Runs that broke off early


def test_shards_without_a_record_of_their_run_are_refused(out):
    require_no_shards(out)
    put(out / ".quire" / "writer")
    require_no_shards(out)
    for name in ("d", "c", "b", "a"):
        put(out / "data" / name)
    with pytest.raises(OutputError) as raised:
        require_no_shards(out)
    assert str(raised.value) == (
        f"{out}/data holds files (a, b, c) but .quire/run.json, which says how they were packed, "
        "is missing; choose a new output"
    )


def test_a_run_without_shards_is_discarded_and_one_with_a_shard_is_kept(tmp_path):
    put(tmp_path / ".quire" / "run.json")
    put(tmp_path / "data" / "a.parquet")
    discard_empty_run(tmp_path)
    assert files(tmp_path) == [".quire/run.json", "data/a.parquet"]
    (tmp_path / "data" / "a.parquet").unlink()
    put(tmp_path / "data" / ".a.parquet.1.tmp")  # by a worker that was stopped
    discard_empty_run(tmp_path)
    assert files(tmp_path) == []
    assert not (tmp_path / "data").exists()


def test_in_a_store_a_run_without_shards_is_kept(remote):
    put(remote / ".quire" / "run.json")
    discard_empty_run(remote)
    assert files(remote) == [".quire/run.json"]


# Whole outputs


WHOLE = {
    "shards": [{"file": "data/a.parquet", "bytes": 3}],
    "plans": [{"file": "plans/b.arrow", "bytes": 2}],
}


def test_an_output_is_complete_if_every_file_has_the_size_in_the_manifest(out):
    require_complete(out, {"shards": []})
    put(out / "data" / "a.parquet", b"abc")
    require_complete(out, {"shards": WHOLE["shards"]})
    put(out / "plans" / "b.arrow", b"ab")
    require_complete(out, WHOLE)


@pytest.mark.parametrize(
    ("data", "plan", "words"),
    [
        (b"ab", b"ab", "data/a.parquet has 2 bytes and the manifest says 3 bytes"),
        (None, b"ab", "data/a.parquet is missing and the manifest says 3 bytes"),
        (b"abc", b"", "plans/b.arrow has 0 bytes and the manifest says 2 bytes"),
        (b"abc", None, "plans/b.arrow is missing and the manifest says 2 bytes"),
    ],
)
def test_an_output_with_a_missing_or_truncated_file_is_not_complete(out, data, plan, words):
    for name, content in (("data/a.parquet", data), ("plans/b.arrow", plan)):
        if content is not None:
            put(out / name, content)
    with pytest.raises(OutputError) as raised:
        require_complete(out, WHOLE)
    assert str(raised.value) == (
        f"{out} was complete, but {words}; restore it, or remove the output and pack again"
    )


def test_an_output_without_its_list_of_bad_records_is_not_complete(out):
    manifest = {"shards": [], "bad_records": {"count": 2, "file": "bad_records.jsonl"}}
    with pytest.raises(OutputError) as raised:
        require_complete(out, manifest)
    assert str(raised.value) == (
        f"{out} was complete, but bad_records.jsonl, the list of skipped records, is "
        "missing; restore it, or remove the output and pack again"
    )
    put(out / "bad_records.jsonl")
    require_complete(out, manifest)
    require_complete(out, {"shards": [], "bad_records": {"count": 0}})


# What is taken away


def test_the_work_folder_of_a_complete_output_is_cleared(out):
    for name in (".quire/run.json", ".quire/shard-00000-000.parquet.json", "manifest.json"):
        put(out / name)
    clear_work(out / ".quire")
    assert files(out) == ["manifest.json"]


def test_clearing_the_work_folder_keeps_the_lock(tmp_path):
    put(tmp_path / ".quire" / "writer")
    clear_work(tmp_path / ".quire")
    assert files(tmp_path) == [".quire/writer"]


def test_41_only_temporary_files_are_swept(out):
    """Fault 41."""
    kept = [".hidden", "a.tmp", "data/a.parquet", "deep/er/.a.tmp"]
    for name in (*kept, ".a.tmp", "data/.a.tmp", ".quire/.a.tmp", "plans/.a.tmp"):
        put(out / name)
    sweep(out)
    assert files(out) == sorted(kept)


def test_an_object_store_has_nothing_to_sweep(monkeypatch):
    out = as_path("s3://bucket/out")  # asked for nothing: there is no such bucket
    assert sweep(out) is None


def test_plans_that_are_not_in_the_manifest_are_removed(out):
    for name in ("plans/a.arrow", "plans/b.arrow", "plans/notes.txt"):
        put(out / name)
    sweep_plans(out, {"plans": [{"file": "plans/b.arrow"}]})
    assert files(out) == ["plans/b.arrow", "plans/notes.txt"]
