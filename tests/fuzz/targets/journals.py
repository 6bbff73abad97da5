"""The commits of an unfinished output, as a resumed run finds them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from quire.corpus.commits import Commit, finished, read_commits, require_present
from quire.corpus.inputs import find_inputs
from quire.corpus.manifest import make_manifest, write_bad_records
from quire.corpus.output import WORK
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.fuzz.mutation import mutated_bytes, mutated_json
from tests.fuzz.target import Subject, Target, by_name

_TERMS = {"partition_size": 300, "max_bad_records": 1}


class _Enough(Exception):
    """The run stops here."""


def _unfinished(folder: Path) -> tuple[Path, Path]:
    """A corpus, and the output of a run that ended after its third commit."""
    corpus = jsonl(folder / "a.jsonl", [*texts(10), {"text": None}, *texts(10, seed=1)])
    heard = []

    def stop(progress: object) -> None:
        heard.extend([1] * (getattr(progress, "commit", None) is not None))
        if len(heard) == 3:
            raise _Enough

    try:
        pack(corpus, folder / "out", on_progress=stop, **_TERMS)
    except _Enough:
        return corpus, folder / "out"
    raise AssertionError("the corpus has fewer than three partitions")


def _maker(seeds: dict[str, bytes]) -> Callable[[Random], tuple[str, bytes]]:
    """One of the files, with other bytes or with other values."""
    whole = list(seeds.values())

    def make(choose: Random) -> tuple[str, bytes]:
        name = choose.choice(list(seeds))
        if choose.random() < 0.4:
            return name, mutated_bytes(choose, seeds[name], whole)
        changed = json.dumps(mutated_json(choose, seeds[name]))
        return name, changed.encode("utf-8", "surrogatepass")

    return make


def _commits(folder: Path) -> Subject:
    """What was read is counted as a manifest counts it; what is not valid is packed again."""
    corpus, out = _unfinished(folder)
    files = find_inputs([corpus])
    seeds = {path.name: path.read_bytes() for path in sorted((out / WORK).glob("shard-*.json"))}
    run = json.loads(next(iter(seeds.values())))["run"]

    def use(commits: list[Commit]) -> None:
        assert len({commit.name for commit in commits}) == len(commits)
        finished(commits)
        require_present(commits, out)
        bad = write_bad_records(out, commits, files)
        json.dumps(make_manifest({}, commits, bad))

    def read(given: tuple[str, bytes]) -> str | None:
        for name, data in (seeds | dict([given])).items():
            (out / WORK / name).write_bytes(data)
        held = read_commits(out / WORK, out, run, 1)
        use(held)
        return None if len(held) == len(seeds) else "to be done again"

    return Subject(make=_maker(seeds), read=read)


def _resumed(folder: Path) -> Subject:
    """Whatever a commit contains, the resumed run ends with the bytes of an uninterrupted one.

    What is damaged is packed again; a commit that was changed and kept must change no byte.
    """
    corpus, out = _unfinished(folder)
    pack(corpus, folder / "undisturbed", **_TERMS)
    expected = hashes(folder / "undisturbed")
    shutil.copytree(out, folder / "begun")
    seeds = {path.name: path.read_bytes() for path in sorted((out / WORK).glob("shard-*.json"))}

    def read(given: tuple[str, bytes]) -> str | None:
        _put_back(folder / "begun", out)
        (out / WORK / given[0]).write_bytes(given[1])
        before = len(list((out / WORK).glob("shard-*.json")))
        assert before == len(seeds)
        pack(corpus, out, resume=True, **_TERMS)
        assert hashes(out) == expected, "a changed commit changed the output"
        return None if given[1] == seeds[given[0]] else "made the same"

    return Subject(make=_maker(seeds), read=read)


def _put_back(begun: Path, out: Path) -> None:
    """Restore the files: by their paths, which a guard can tell from others."""
    for path in sorted(out.rglob("*"), reverse=True):
        if path.is_file():
            path.unlink()
        else:
            path.rmdir()
    for path in sorted(begun.rglob("*")):
        target = out / path.relative_to(begun)
        if path.is_dir():
            target.mkdir()
        else:
            target.write_bytes(path.read_bytes())


TARGETS = by_name(
    Target(name="commits", prepare=_commits), Target(name="resumed_run", prepare=_resumed)
)
