"""Commits: shards with the committed bytes are kept, everything else is packed again."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading

import fsspec
import pytest

from quire.corpus.commits import (
    Commit,
    finished,
    read_commits,
    require_present,
    write_commit,
)
from quire.errors import WorkerError
from quire.formats.format import BadRecord
from quire.ledger import Ledger, Tally, TokenTally
from quire.seals import checksum
from quire.storage import RemotePath, as_path

NUMBERS = itertools.count()
RUN = "the terms of this run"
LEDGER = Ledger(
    documents=Tally(input=3, emitted=2, dropped={"bad_record": 1}),
    tokens=TokenTally(input=7, emitted=7, special=2, padding=1),
)


def commit_of(partition=0, piece=0, data=b"rows", **changes) -> Commit:
    fields = {
        "run": RUN,
        "partition": partition,
        "piece": piece,
        "last": True,
        "sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "rows": 2,
        "tokens": 7,
        "content": 6,
        "ledger": LEDGER,
        "bad": (BadRecord(file=0, record=1, offset=None, reason="is no text"),),
    }
    return Commit(**(fields | changes))


@pytest.fixture
def out(tmp_path):
    for name in ("data", "work"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def remote():
    root = f"/commits-{next(NUMBERS)}"
    yield as_path(f"memory:/{root}")
    if fsspec.filesystem("memory").exists(root):
        fsspec.filesystem("memory").rm(root, recursive=True)


def committed(out, *commits, data=b"rows"):
    """The commits, written; their shards hold `data`."""
    for commit in commits:
        put(out / commit.file, data)
        write_commit(out / "work", commit)
    return list(commits)


def put(path, data):
    if hasattr(path, "write_bytes"):
        path.write_bytes(data)
    else:
        fsspec.filesystem("memory").pipe(path.key, data)


def resealed(plain) -> str:
    """With a matching checksum, so that the content itself must be checked."""
    content = {name: plain[name] for name in plain if name != "checksum"}
    return json.dumps(content | {"checksum": checksum(content)})


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_commit_is_a_small_file_named_after_its_shard(out):
    commit = commit_of(partition=7, piece=2, data=b"")
    write_commit(out / "work", commit)
    assert (commit.name, commit.file) == (
        "shard-00007-002.parquet",
        "data/shard-00007-002.parquet",
    )
    assert names(out / "work") == ["shard-00007-002.parquet.json"]
    assert (out / "work" / "shard-00007-002.parquet.json").read_text() == (
        '{"bad": [{"file": 0, "offset": null, "reason": "is no text", "record": 1}], '
        '"checksum": "1f54789b91fea055a2e9eb892109b7582125045197ce7a45cfdcf9519eac15ed", '
        '"content": 6, '
        '"last": true, "ledger": {"documents": {"dropped": {"bad_record": 1}, "emitted": 2, '
        '"input": 3, "pending": 0}, "tokens": {"dropped": {}, "emitted": 7, "input": 7, '
        '"overlap": 0, "padding": 1, "pending": 0, "special": 2}}, "partition": 7, "piece": 2, '
        '"rows": 2, "run": "the terms of this run", '
        '"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", '
        '"size": 0, "tokens": 7, "version": 3}'
    )


def test_a_commit_of_another_run_is_removed(out):
    """Its shard is packed again, under the terms of this one."""
    own, other = committed(out, commit_of(), commit_of(piece=1, run="other terms"))
    assert read_commits(out / "work", out, RUN, 3) == [own]
    assert names(out / "work") == [f"{own.name}.json"]
    assert (out / other.file).exists()


def test_commits_come_back_in_input_order(out):
    late, early, middle = (
        commit_of(partition=1),
        commit_of(piece=0, last=False),
        commit_of(piece=1, bad=()),
    )
    committed(out, late, early, middle)
    assert read_commits(out / "work", out, RUN, 3) == [early, middle, late]
    assert len(names(out / "work")) == 3


def test_a_folder_without_commits_has_none_and_keeps_its_other_files(out):
    (out / "work" / "run.json").write_text("{}")
    assert read_commits(out / "work", out, RUN, 3) == []
    assert names(out / "work") == ["run.json"]


@pytest.mark.parametrize("damage", [b"rowz", b"row", b"", None])
def test_a_commit_whose_shard_is_changed_or_missing_is_removed(out, damage):
    first, second = committed(out, commit_of(), commit_of(piece=1))
    if damage is None:
        (out / first.file).unlink()
    else:
        (out / first.file).write_bytes(damage)
    assert read_commits(out / "work", out, RUN, 3) == [second]
    assert names(out / "work") == ["shard-00000-001.parquet.json"]


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: "{",
        lambda plain: "[" * 100_000,
        lambda plain: "[]",
        lambda plain: "3",
        lambda plain: resealed(plain | {"more": 1}),
        lambda plain: resealed({name: plain[name] for name in plain if name != "size"}),
        lambda plain: resealed({name: plain[name] for name in plain if name != "bad"}),
        lambda plain: resealed({name: plain[name] for name in plain if name != "ledger"}),
        lambda plain: resealed(plain | {"bad": [{"file": 0}]}),
        lambda plain: resealed(plain | {"bad": [7]}),
        lambda plain: resealed(plain | {"bad": None}),
        lambda plain: resealed(plain | {"ledger": {"tokens": {"input": 1}}}),
        lambda plain: resealed(plain | {"ledger": []}),
        lambda plain: resealed(plain | {"piece": 1}),
        lambda plain: resealed(plain | {"partition": "0"}),
        lambda plain: resealed(plain | {"piece": None}),
        lambda plain: resealed(plain | {"rows": "2"}),
        lambda plain: resealed(plain | {"tokens": 7.0}),
        lambda plain: resealed(plain | {"last": 1}),
        lambda plain: resealed(plain | {"sha256": 5}),
        lambda plain: resealed(plain | {"size": -4}),
        lambda plain: resealed(plain | {"tokens": -1}),
        lambda plain: resealed(plain | {"tokens": 2**63}),
        lambda plain: resealed(plain | {"bad": [{**plain["bad"][0], "reason": None}]}),
        lambda plain: resealed(plain | {"bad": [{**plain["bad"][0], "file": 3}]}),
        lambda plain: json.dumps(plain | {"rows": 3}),
        lambda plain: json.dumps(plain | {"tokens": "7"}),
        lambda plain: json.dumps({name: plain[name] for name in plain if name != "checksum"}),
    ],
)
def test_a_damaged_or_foreign_commit_is_removed(out, change):
    """Fault 37: it is packed again, and never an error."""
    damaged, whole = committed(out, commit_of(), commit_of(partition=3))
    file = out / "work" / f"{damaged.name}.json"
    file.write_text(change(json.loads(file.read_text())))
    assert read_commits(out / "work", out, RUN, 3) == [whole]
    assert names(out / "work") == ["shard-00003-000.parquet.json"]


def test_a_commit_that_is_not_valid_utf8_is_removed(out):
    (commit,) = committed(out, commit_of())
    (out / "work" / f"{commit.name}.json").write_bytes(b"\xff\xfe")
    assert read_commits(out / "work", out, RUN, 3) == []
    assert names(out / "work") == []


def test_in_a_store_a_shard_is_compared_by_size(remote):
    """It appeared whole, before its commit, so it is not read again."""
    same, longer, gone = committed(
        remote, commit_of(), commit_of(partition=1), commit_of(partition=2)
    )
    put(remote / same.file, b"ROWS")
    put(remote / longer.file, b"rows and more")
    (remote / gone.file).unlink()
    assert read_commits(remote / "work", remote, RUN, 3) == [same]
    assert names(remote / "work") == ["shard-00000-000.parquet.json"]


def test_in_a_store_commits_are_read_in_parallel(remote, monkeypatch):
    """One after the other, they would wait for each other here until the barrier breaks."""
    commits = committed(remote, commit_of(), commit_of(piece=1))
    together, real = threading.Barrier(2, timeout=20), RemotePath.read_bytes

    def read_bytes(path):
        together.wait()
        return real(path)

    monkeypatch.setattr(RemotePath, "read_bytes", read_bytes)
    assert read_commits(remote / "work", remote, RUN, 3) == commits


def test_a_commit_under_another_name_is_removed(out):
    first, second = committed(out, commit_of(), commit_of(piece=1))
    content = (out / "work" / f"{first.name}.json").read_bytes()
    (out / "work" / f"{second.name}.json").write_bytes(content)
    assert read_commits(out / "work", out, RUN, 3) == [first]
    assert names(out / "work") == [f"{first.name}.json"]


# Shards that a worker says it wrote


def test_committed_shards_of_the_right_size_are_present(out, remote):
    for place in (out, remote):
        require_present(committed(place, commit_of(), commit_of(piece=1)), place)
        require_present([], place)


def test_a_store_lists_all_shards_in_one_request(remote, monkeypatch):
    commits = committed(remote, commit_of(), commit_of(piece=1))
    monkeypatch.setattr(RemotePath, "stat", None)
    require_present(commits, remote)


@pytest.mark.parametrize("stored", [False, True])
def test_shards_that_this_process_does_not_see_are_an_error(out, remote, stored):
    place = remote if stored else out
    commits = committed(place, *(commit_of(partition=number) for number in range(3)))
    (place / commits[1].file).unlink()
    put(place / commits[2].file, b"row")
    with pytest.raises(WorkerError) as raised:
        require_present(commits, place)
    assert str(raised.value) == (
        f"2 of 3 committed shards are not in {place}, first "
        "data/shard-00001-000.parquet\n"
        "choose an output that all workers see under the same path"
    )


# Partitions, and files


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], set()),
        ([(0, 0, True)], {0}),
        ([(0, 0, False)], set()),
        ([(0, 0, False), (0, 1, True)], {0}),
        ([(0, 1, True)], set()),
        ([(0, 0, False), (0, 2, True)], set()),
        ([(0, 2, True), (0, 1, False), (0, 0, False), (5, 0, True), (6, 1, True)], {0, 5}),
    ],
)
def test_a_partition_is_finished_when_all_pieces_up_to_the_last_are_committed(pieces, expected):
    commits = [commit_of(partition=p, piece=n, last=last) for p, n, last in pieces]
    assert finished(iter(commits)) == expected
