"""The counts of resume points and elastic pairs: none is inexact, and controls are."""

from __future__ import annotations

import json

import pytest

from quire.seals import checksum
from tests.machines import elastic, resumable, resume_points
from tests.machines.resumable import KINDS_OF_RESUMABLES


@pytest.mark.parametrize("kind", list(KINDS_OF_RESUMABLES))
def test_every_resume_point_is_exact(kind):
    counts = resume_points.count_points(kind, 80)
    assert (counts["tried"], counts["inexact"]) == (80, 0)
    assert counts["runs"] > 1


@pytest.mark.parametrize("kind", list(elastic.KINDS))
def test_every_pair_of_world_sizes_is_exact(kind):
    assert elastic.count_pairs(kind, 12) == {"tried": 12, "inexact": 0}


def test_a_packer_that_forgets_a_document_is_counted_as_inexact(monkeypatch):
    def forgetful(self, text):
        plain = json.loads(text)
        plain["packer"]["keys"] = plain["packer"]["keys"][1:]
        plain["packer"]["spaces"] = plain["packer"]["spaces"][1:]
        said = {name: value for name, value in plain["packer"].items() if name != "checksum"}
        plain["packer"] = said | {"checksum": checksum(said)}
        whole_restore(self, json.dumps(plain))

    whole_restore = resumable.Rows.restore
    monkeypatch.setattr(resumable.Rows, "restore", forgetful)
    assert resume_points.count_points("online packer", 60)["inexact"] > 20


def test_a_stream_that_resumes_one_batch_late_is_counted_as_inexact(monkeypatch):
    def late(self, text):
        self.source.set_state(json.loads(text))
        next(self.source, None)

    monkeypatch.setattr(resumable.Streamed, "restore", late)
    assert resume_points.count_points("stream", 40)["inexact"] > 30


def test_a_world_that_loads_nothing_is_counted_as_inexact(monkeypatch):
    monkeypatch.setattr(elastic.Loaders, "load", lambda self, text: None)
    assert elastic.count_pairs("loader", 12)["inexact"] > 6


def test_the_commands_write_their_counts_and_fail_if_one_is_inexact(tmp_path, monkeypatch, capsys):
    file = tmp_path / "counts.json"
    assert elastic.main(["--pairs", "4", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["totals"] == {"tried": 4, "inexact": 0}
    assert resume_points.main(["--points", "20", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["totals"] == {"tried": 20, "inexact": 0}
    monkeypatch.setattr(resume_points, "is_exact", lambda *_: False)
    assert resume_points.main(["--points", "20", "--json", str(file)]) == 1
    assert json.loads(file.read_text())["totals"] == {"tried": 20, "inexact": 20}
    assert "20 points, 20 inexact" in capsys.readouterr().out
