"""Metrics per source are those of all ranks together, on every rank."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training import metric_ranks
from tests.training.launching import environment, torchrun


@pytest.mark.slow
def test_metrics_are_summed_over_two_ranks(tmp_path):
    command = [*torchrun(2), str(Path(metric_ranks.__file__)), str(tmp_path)]
    subprocess.run([sys.executable, *command], check=True, env=environment(), timeout=600)
    first, second, nothing = json.loads((tmp_path / "rank0.json").read_text())
    assert json.loads((tmp_path / "rank1.json").read_text()) == [first, second, nothing]
    ranks = [metric_ranks.values(0), metric_ranks.values(1)]
    losses, correct, sources = (np.concatenate(parts) for parts in zip(*ranks, strict=True))
    expected = {}
    for number, name in enumerate("abc"):
        of_source = sources == number
        expected[f"loss/{name}"] = losses[of_source].mean()
        expected[f"token_acc/{name}"] = correct[of_source].mean()
    assert first == pytest.approx(expected, abs=1e-12)
    assert first.keys() == expected.keys()  # a source without targets has no metrics
    alone = metric_ranks.values(0)
    assert second == pytest.approx(
        {"loss/a": alone[0][:5].mean(), "token_acc/a": alone[1][:5].mean()}
    )
    assert nothing == {}
