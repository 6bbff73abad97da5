"""The example packs a dataset, keeps documents apart and learns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pack_a_dataset.py"


def test_the_example_runs_as_a_script():
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "OMP_NUM_THREADS": "1"},
    )
    assert "documents in the first batch: isolated" in done.stdout
    given, kept = map(int, re.search(r"(\d+) tokens in, (\d+) out", done.stdout).groups())
    assert given == kept > 1000
    first, last = (float(loss) for loss in re.findall(r"loss (\d+\.\d+)", done.stdout))
    assert 1 < last < first < 5.56  # ln 259 is the loss of knowing nothing
