"""The example runs, its samples are isolated, and the model learns."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "vision_language.py"


@pytest.mark.filterwarnings("ignore")  # of other libraries
def test_the_example_isolates_samples_packs_well_and_learns(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [EXAMPLE.name])
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    output = capsys.readouterr().out
    assert re.search(r"\d samples in the first pack: isolated", output)
    losses = [float(loss) for loss in re.findall(r"'eval_loss': '([\d.]+)'", output)]
    assert len(losses) == 3
    assert 1 < losses[-1] < losses[0] < 5.57  # ln 262 is the loss of a uniform prediction
    fills = [float(ratio) for ratio in re.findall(r"fill ratio ([\d.]+)", output)]
    assert len(fills) == 3
    assert min(fills) > 0.7
    assert "<|im_start|>assistant\n⟦chelsea, part 3<|im_end|>⟧\n" in output, "only this is trained"
    assert re.search(r"curve \d\.\d\d █[▁▂▃▄▅▆▇█]+ \d\.\d\d", output)
