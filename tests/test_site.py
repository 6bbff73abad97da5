"""The site is built without a warning: every page, link and name in the reference is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_site_is_built_without_a_warning(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    commands = (tmp_path / "site/reference/commands.html").read_text(encoding="utf-8")
    for name in (
        "pack",
        "plan",
        "inspect",
        "verify",
        "verify-model",
        "bench-model",
        "report",
        "export",
        "replan",
        "stream",
        "demo",
    ):
        assert f"quire {name}</code>" in commands
    planning = (tmp_path / "site/reference/planning.html").read_text(encoding="utf-8")
    assert "The plan that packs documents of these lengths" in planning
    options = (tmp_path / "site/reference/options.html").read_text(encoding="utf-8")
    for name in ("packing_mode", "buffer_size", "packing_min_fill_ratio", "vocab_size_multiple"):
        assert f"<code>{name}</code>" in options
    assert "<!-- options" not in options
