"""Runs that are killed mid-epoch and resumed end with the same bits, in every framework.

The whole matrix is made by `python -m tests.training.matrix`; here, one cell of each kind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.training.launching import ROOT, environment
from tests.training.matrix import DATA, TARGET, WORLDS, Cell, cells
from tests.training.run import FRAMEWORKS

NAMES = tuple(Cell.__dataclass_fields__)
CELLS = [
    Cell(framework="torch", data="packed", world="1", kill="step 7"),
    Cell(framework="torch", data="stream", world="2 to 1", kill="step 3"),
    Cell(framework="transformers", data="packed", world="2", kill="save 4"),
    Cell(framework="transformers", data="stream", world="1", kill="step 7"),
    Cell(framework="transformers", data="packs", world="1", kill="step 3"),
    Cell(framework="trl", data="packed", world="1 to 2", kill="step 3"),
    Cell(framework="accelerate", data="stream", world="2", kill="step 3"),
    Cell(framework="lightning", data="packed", world="1", kill="step 7"),
    Cell(framework="lightning", data="stream", world="1", kill="step 3"),
    Cell(framework="jax", data="packed", world="1", kill="step 3"),
    Cell(framework="jax", data="stream", world="1", kill="step 7"),
    Cell(framework="jax", data="stream", world="1", kill="save 4"),
    Cell(framework="lightning", data="packed", world="2", kill="save 4"),
    Cell(framework="jax", data="stream", world="2", kill="step 3"),
    Cell(framework="trl", data="packed vision", world="1 to 2", kill="step 3"),
    Cell(framework="torch", data="packed", world="2", kill="step 3", launcher="torchrun"),
    Cell(
        framework="accelerate",
        data="packed",
        world="2",
        kill="step 3",
        launcher="accelerate launch",
    ),
]
PROGRAM = """
import json, sys
from pathlib import Path
from tests.training.matrix import TARGET, Cell, Matrix

corpus, work, cell, forget = sys.argv[1:]
matrix = Matrix(Path(corpus), Path(work))
print(json.dumps(matrix.attempt(Cell(**json.loads(cell)), forget=bool(forget))))
"""


def attempt(corpus, work, cell: Cell, forget: str = "") -> dict:
    """In a process of its own, whose copies are the ranks."""
    given = json.dumps({name: getattr(cell, name) for name in cell.__dataclass_fields__})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(corpus), str(work), given, forget],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, **environment()},
        timeout=900,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_killed_run_ends_with_the_bits_of_an_uninterrupted_one(corpus, tmp_path, cell):
    found = attempt(corpus, tmp_path, cell)
    assert found["exact"], found


@pytest.mark.slow
def test_a_run_that_forgets_its_place_in_the_data_is_inexact(corpus, tmp_path):
    assert not attempt(corpus, tmp_path, CELLS[0], forget="yes")["exact"]


@pytest.mark.slow
def test_packs_of_another_number_of_ranks_are_refused(corpus, tmp_path):
    cell = Cell(framework="torch", data="packs", world="1 to 2", kill="step 3")
    assert "refused with InvalidState" in attempt(corpus, tmp_path, cell)["limit"]


def test_the_published_matrix_has_no_inexact_cell():
    published = json.loads(TARGET.read_text(encoding="utf-8"))
    tried = {one["framework"] for one in published["results"]}
    assert published["inexact"] == 0 < published["cells"]
    assert published["control_is_inexact"]
    assert tried == {"torch", "transformers", "trl", "accelerate", "lightning", "jax"}


def test_the_published_matrix_has_every_cell():
    published = json.loads(TARGET.read_text(encoding="utf-8"))
    found = {Cell(**{name: one[name] for name in NAMES}) for one in published["results"]}
    every = set(cells(list(FRAMEWORKS), list(DATA), list(WORLDS)))
    assert every == found and len(every) == published["cells"] + published["refused"]
    refused = {one["data"] for one in published["results"] if "limit" in one}
    assert refused == {"packs"}
