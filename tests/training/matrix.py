"""`python -m tests.training.matrix` kills and resumes training in every framework, and counts.

Writes docs/reliability/resume_matrix.json: framework × data × ranks × kill. A cell is exact if the
run that was killed (SIGKILL) and resumed trained on the batches of the uninterrupted run, in the
same order, and ended with bitwise equal weights (float32, on CPU, deterministic, with dropout).
Another number of ranks adds in another order, so there the batches are equal and the weights
differ by rounding. JAX reads streams through grain's `GrainBatches`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

import quire
from tests.training import run
from tests.training.launching import ROOT, accelerate, environment, torchrun

TARGET = ROOT / "docs" / "reliability" / "resume_matrix.json"
KILLS = ("step 3", "step 7", "save 4")
"""In the first epoch, in the second one, and while a checkpoint is written."""
DATA = ("packed", "stream", "packs", "packed vision")
WORLDS = ("1", "2", "1 to 2", "2 to 1")
ROUNDING = 1e-5
"""A thousandth of what one step of AdamW moves a weight by."""
LIMIT = "packs belong to a rank, and another number of ranks has others: refused with InvalidState"
IMPOSSIBLE = {
    ("trl", "packs"): "SFTTrainer takes only a Dataset or IterableDataset of datasets; its samples "
    "are packed on disk instead",
}
"""What a framework has no place for, and why."""
LAUNCHERS = {"torchrun": torchrun, "accelerate launch": accelerate}


@dataclass(frozen=True, kw_only=True)
class Cell:
    framework: str
    data: str
    world: str
    """How many ranks, or before and after the kill: ``1 to 2``."""
    kill: str
    launcher: str = "fork"

    @property
    def ranks(self) -> tuple[int, int]:
        before, _, after = self.world.partition(" to ")
        return int(before), int(after or before)

    @property
    def is_refused(self) -> bool:
        return self.data == "packs" and self.ranks[0] != self.ranks[1]

    @property
    def dropout(self) -> float:
        """None where ranks change, as each has its own random numbers."""
        return 0.1 if self.ranks[0] == self.ranks[1] else 0.0


def cells(frameworks: list[str], data: list[str], worlds: list[str]) -> Iterator[Cell]:
    """Every kill, and two ranks started by the launchers that users have."""
    for framework, kind in product(frameworks, data):
        if (framework, kind) in IMPOSSIBLE:
            continue
        named = {"framework": framework, "data": kind}
        for world in worlds:
            for kill in KILLS if " to " not in world else KILLS[:1]:
                yield Cell(**named, world=world, kill=kill)
        if "2" in worlds:
            for launcher in LAUNCHERS:
                yield Cell(**named, world="2", kill=KILLS[0], launcher=launcher)


def make_corpus(folder: Path) -> None:
    """Texts for streams, and packed rows of at most 64 tokens."""
    (folder / "texts").mkdir(parents=True)
    random = np.random.default_rng(0)
    for part in range(3):
        sizes = random.integers(2, 30, 60).tolist()
        texts = [f"{part} {number} " + "ab " * size for number, size in enumerate(sizes)]
        lines = [json.dumps({"text": text}) for text in texts]
        (folder / "texts" / f"{part}.jsonl").write_text("\n".join(lines))
    rows = [json.dumps({"text": "word " * (n % 9 + 1)}) for n in range(45)]
    (folder / "texts-packed.jsonl").write_text("\n".join(rows))
    quire.pack_corpus([folder / "texts-packed.jsonl"], folder / "packed", "byte", max_length=64)
    pack_samples(folder)


def pack_samples(folder: Path, family: str = "qwen3_vl") -> None:
    """Samples with real pictures by reference, packed on disk."""
    from PIL import Image
    from skimage import data

    from tests.vision import language_models

    names = ("input_ids", "mm_token_type_ids", "image_grid_thw")
    for name in language_models.PICTURES:
        pixels = np.atleast_3d(getattr(data, name)())
        colors = pixels if pixels.shape[2] == 3 else pixels.repeat(3, axis=2)
        Image.fromarray(colors).save(folder / f"{name}.png")
    lines = []
    for index in range(60):
        pictures = [language_models.PICTURES[index % 6]] if index % 3 else []
        sample = language_models.encode(family, "word " * (1 + index % 5), *pictures)
        values = {name: sample[name].tolist() for name in names if name in sample}
        files = {"images": [f"{name}.png" for name in pictures]}
        lines.append(json.dumps({"image_grid_thw": []} | values | files))
    (folder / "samples.jsonl").write_text("\n".join(lines))
    quire.pack_corpus(
        [folder / "samples.jsonl"],
        folder / "packed vision",
        max_length=64,
        image_token_id=language_models.token_id("image_pad"),
    )


class Matrix:
    """Runs cells; uninterrupted runs are shared between them."""

    def __init__(self, corpus: Path, work: Path) -> None:
        self._corpus, self._work = corpus, work
        self._whole: dict[tuple, Path] = {}

    def attempt(self, cell: Cell, *, forget: bool = False) -> dict:
        """Kill, resume, compare. With ``forget``, a control, the data starts over."""
        before, after = cell.ranks
        job = self._job(cell, self._new_folder())
        if launch(replace(job, kill=cell.kill), before, cell.launcher):
            return asdict(cell) | {"exact": False, "why": "it was not killed"}
        finished = launch(replace(job, resume=True, forget=forget), after, cell.launcher)
        folder = Path(job.folder)
        log = "".join(file.read_text() for file in folder.glob("log-*.txt"))
        if cell.is_refused:
            refused = not finished and "InvalidState" in log
            return asdict(cell) | ({"limit": LIMIT} if refused else {"exact": False})
        if not finished:
            return asdict(cell) | {"exact": False, "why": log[-1500:]}
        return asdict(cell) | compared(folder, self._reference(cell), after, before == after)

    def _reference(self, cell: Cell) -> Path:
        key = (cell.framework, cell.data, cell.ranks[1], cell.dropout)
        if key not in self._whole:
            folder = self._new_folder()
            if not launch(self._job(cell, folder), cell.ranks[1]):
                raise RuntimeError((folder / "log-0.txt").read_text()[-3000:])
            self._whole[key] = folder
        return self._whole[key]

    def _job(self, cell: Cell, folder: Path) -> run.Job:
        return run.Job(
            framework=cell.framework,
            data=cell.data,
            folder=str(folder),
            corpus=str(self._corpus),
            dropout=cell.dropout,
        )

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._work))


def launch(job: run.Job, world: int, launcher: str = "fork") -> bool:
    """Run all ranks of a job; whether all of them succeeded."""
    if launcher != "fork":
        file = Path(job.folder, "job.json")
        file.write_text(json.dumps(asdict(job)))
        command = [*LAUNCHERS[launcher](world), "-m", "tests.training.run", str(file)]
        with Path(job.folder, "log-0.txt").open("a") as log:
            done = subprocess.run(
                [sys.executable, *command],
                stdout=log,
                stderr=log,
                env=environment(),
                cwd=ROOT,
                timeout=600,
                check=False,
            )
        return done.returncode == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [_fork(job, rank, world, port) for rank in range(world)]
    codes = []
    while children:
        _, status = os.waitpid(children.pop(0), 0)
        codes.append(os.waitstatus_to_exitcode(status))
        if codes[-1] and children:  # the others would wait for it
            time.sleep(0.2)
            for child in children:
                os.kill(child, 9)
    return not any(codes)


def _fork(job: run.Job, rank: int, world: int, port: int) -> int:
    """A rank in a process that has everything imported already, as torchrun would start it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        log = os.open(f"{job.folder}/log-{rank}.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if world > 1:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
            os.environ |= {name: str(value) for name, value in names.items()}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": str(world)}
        run.run(replace(job, rank=rank, world=world))
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def compared(folder: Path, reference: Path, world: int, is_same_world: bool) -> dict:
    """What of the resumed run is that of the uninterrupted one."""
    same_batches = all(_continues(folder, reference, rank, is_same_world) for rank in range(world))
    difference = max(_difference(folder, reference, rank) for rank in range(world))
    return {
        "exact": same_batches and difference <= (0.0 if is_same_world else ROUNDING),
        "same_batches": same_batches,
        "difference": difference,
        "resumed_after_microbatches": batches(folder, 0)[-1][0],
    }


def batches(folder: Path, rank: int) -> list[tuple[int, list[str]]]:
    """The runs of a rank: where each began, and digests of what it trained on."""
    runs: list[tuple[int, list[str]]] = []
    for line in (folder / f"batches-{rank}.txt").read_text().splitlines():
        if line.startswith("begin "):
            runs.append((int(line[6:]), []))
        else:
            runs[-1][1].append(line)
    return runs


def _continues(folder: Path, reference: Path, rank: int, is_same_world: bool) -> bool:
    """Whether the killed run is the reference's beginning, and the resumed one its end."""
    _, expected = batches(reference, rank)[0]
    (_, killed), *_ = runs = batches(folder, rank)
    trained = runs[-1][1]
    began_alike = not is_same_world or killed == expected[: len(killed)]
    return began_alike and 0 < len(trained) < len(expected) and trained == expected[-len(trained) :]


def _difference(folder: Path, reference: Path, rank: int) -> float:
    """The largest difference of a weight; 0 only if all bits are equal."""
    import torch

    names = f"weights-{rank}.txt", f"weights-{rank}.pt"
    if (folder / names[0]).read_text() == (reference / names[0]).read_text():
        return 0.0
    one, other = (torch.load(path / names[1]) for path in (folder, reference))
    return float((one - other).abs().max()) or sys.float_info.min


def summary(results: list[dict]) -> dict:
    """Counts, and a table of framework and data: kills by ranks, and how many were inexact."""
    tried = [result for result in results if "limit" not in result]
    table: dict[str, dict[str, int]] = {}
    for one in tried:
        row = table.setdefault(f"{one['framework']}, {one['data']}", {})
        ranks = f"{one['world']} rank{'s' * (one['world'] != '1')}"
        ranks = ranks if one["launcher"] == "fork" else one["launcher"]
        row[ranks] = row.get(ranks, 0) + 1
        row["inexact"] = row.get("inexact", 0) + (not one["exact"])
    names = dict.fromkeys(name for row in table.values() for name in row)
    ordered = [*(name for name in names if name != "inexact"), "inexact"]
    return {
        "command": "python -m tests.training.matrix",
        "cells": len(tried),
        "inexact": sum(not result["exact"] for result in tried),
        "refused": len(results) - len(tried),
        "kills of training runs": {
            key: {name: row.get(name, 0) for name in ordered} for key, row in table.items()
        },
    }


def finished(printed: Path) -> dict[Cell, dict]:
    """The results of a run that was interrupted, by cell."""
    lines = [json.loads(line) for line in printed.read_text().splitlines() if line[:1] == "{"]
    names = Cell.__dataclass_fields__
    return {Cell(**{name: line[name] for name in names}): line for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", nargs="*", default=list(run.FRAMEWORKS))
    parser.add_argument("--data", nargs="*", default=list(DATA))
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS))
    parser.add_argument("--out", type=Path, default=TARGET)
    parser.add_argument("--done", type=Path, help="what a run that was interrupted printed")
    given = parser.parse_args()
    done = {} if given.done is None else finished(given.done)
    absent = [name for name in ("lightning",) if importlib.util.find_spec(name) is None]
    frameworks = [name for name in given.frameworks if name not in absent]
    for name in (*frameworks, "trl.trainer.sft_trainer"):
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)  # once, and not in every rank
    every = list(cells(frameworks, given.data, given.worlds))
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        corpus, work = Path(temporary, "corpus"), Path(temporary, "work")
        work.mkdir()
        make_corpus(corpus)
        matrix = Matrix(corpus, work)
        for cell in every:
            results.append(done.get(cell) or matrix.attempt(cell))
            print(json.dumps(results[-1]), flush=True)
        first = Cell(framework="torch", data="packed", world="1", kill=KILLS[0])
        control = matrix.attempt(first, forget=True)
    found = summary(results) | {"control_is_inexact": not control["exact"], "absent": absent}
    given.out.write_text(json.dumps({**found, "results": results}, indent=1) + "\n")
    print(found)
    sys.exit(bool(found["inexact"]))


if __name__ == "__main__":
    main()
