"""The installed command, and the environment that makes one of its file operations fail."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.corpus.command import ROOT
from tests.faults.layer import Fault

QUIRE = Path(sys.executable).with_name("quire")
_SITE = "from tests.faults.layer import install_from_environment\ninstall_from_environment()\n"


def environment(folder: Path, fault: Fault | None) -> dict[str, str]:
    """Environment variables of a process and its children, for a run with this fault or none.

    Python imports `sitecustomize` from the folder when it starts.
    """
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(_SITE)
    places = [str(folder / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    found["PYTHONDONTWRITEBYTECODE"] = "1"
    return {**found, **(fault.environment() if fault else {})}
