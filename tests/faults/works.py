"""The tasks that get faults: packing, replanning, opening rows, saving a state; each runs again."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from quire.corpus import replan
from quire.packed import PackedDataset
from quire.stream import load_state, save_state
from quire.stream.state import sealed
from quire.verify.output import verify_output
from tests.corpus.corpora import jsonl, pack, texts

PARTITION = 6000


@dataclass(frozen=True, kw_only=True)
class Work:
    """A task that writes to a disk, and is repeated after a fault."""

    name: str
    prepare: Callable[[Path], object]
    """The files that exist before."""
    run: Callable[[Path], object]
    prove: Callable[[Path], object]
    """Raise unless the result is complete, according to its own check."""
    is_cache: bool = False
    """Whether losing it costs only time."""


def all_works(folder: Path) -> list[Work]:
    """Tasks on one small corpus with a bad record, which is in the folder."""
    corpus = jsonl(folder / "corpus.jsonl", [*texts(22), {"text": None}, *_noise(12)])

    def rows(disk: Path) -> None:
        pack(corpus, disk / "out", **_TERMS)

    def index(disk: Path) -> None:
        pack(corpus, disk / "out", index_only=True, **_TERMS)

    def plan_again(disk: Path) -> None:
        replan(disk / "out", max_length=64, strategy="wrapped")

    def half_packed(disk: Path) -> None:
        killed(lambda: rows(disk), disk, after="shard-00001-000.parquet.json")

    def sealed_but_not_cleared(disk: Path) -> None:
        killed(lambda: index(disk), disk, after="manifest.json")

    return [
        Work(name="pack", prepare=_nothing, run=rows, prove=_verify),
        Work(name="pack --index-only", prepare=_nothing, run=index, prove=_verify),
        Work(name="resume", prepare=half_packed, run=rows, prove=_verify),
        Work(
            name="resume what is sealed", prepare=sealed_but_not_cleared, run=index, prove=_verify
        ),
        Work(name="replan", prepare=index, run=plan_again, prove=_verify),
        Work(name="open rows", prepare=rows, run=_read_all, prove=_read_all, is_cache=True),
        Work(name="save a state", prepare=_save(3), run=_save(8), prove=_load),
    ]


_TERMS = {"partition_size": PARTITION, "max_bad_records": 1, "resume": True}
_STATE = "state.json"


def killed(act: Callable[[], object], disk: Path, *, after: str) -> None:
    """Run it in a process that dies after it has renamed a file to this name."""
    process = os.fork()
    if not process:
        real = os.replace

        def replace(path, to) -> None:
            real(path, to)
            if Path(to).name == after:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = replace
        act()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    (disk / "out" / "data" / ".shard-00009-000.parquet.0123456789ab.tmp").write_bytes(b"half")


def _noise(count: int) -> list[str]:
    """Texts that hardly compress, so that a shard takes several writes."""
    choose = random.Random(0)
    return [choose.randbytes(choose.randint(100, 2000)).hex() for _ in range(count)]


def _nothing(disk: Path) -> None:
    """An empty disk."""


def _verify(disk: Path) -> None:
    report = verify_output(disk / "out")
    assert report.ok, report.problems


def _read_all(disk: Path) -> None:
    dataset = PackedDataset(disk / "out")
    assert sum(len(row["input_ids"]) for row in dataset) == dataset.manifest["tokens"]


def _save(step: int) -> Callable[[Path], None]:
    state = sealed({"step": step, "options": {}, "tokenizer": {}, "streams": ["x" * 20_000] * step})
    return lambda disk: save_state(state, disk / _STATE)


def _load(disk: Path) -> None:
    assert load_state(disk / _STATE)["step"] == 8
