"""The distribution: built, installed into an empty environment, and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

import quire
from quire.errors import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
PIP = ["-m", "pip", "--disable-pip-version-check"]


def run(*words: object, cwd: Path) -> str:
    """The output of a program that does not see this checkout."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_project_has_the_name_that_messages_advise_to_install():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION == "quire-pack"
    assert list(project["scripts"]) == ["quire"]


def test_no_text_advises_to_install_the_unrelated_package():
    folders = [ROOT / "src", ROOT / "docs", ROOT / "examples"]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    texts = [file for file in files if file.suffix in (".py", ".md", ".html", ".yaml")]
    assert len(texts) > 100
    for file in (*texts, ROOT / "README.md", ROOT / "pyproject.toml"):
        text = file.read_text(encoding="utf-8")
        assert "quire[" not in text.replace("quire-pack[", ""), file
        assert "install quire" not in text.replace("install quire-pack", ""), file


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment_packs(tmp_path):
    """Needs a package index, as `make setup` does."""
    run(sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"quire_pack-{quire.__version__}-py3-none-any.whl"
    venv.create(tmp_path / "venv", with_pip=True)
    python, command = (tmp_path / "venv" / "bin" / name for name in ("python", "quire"))
    run(python, *PIP, "install", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)
    said = "import quire, importlib.metadata as m; print(m.version('quire-pack'), quire.__file__)"
    version, file = run(python, "-c", said, cwd=tmp_path).split()
    assert version == quire.__version__
    assert Path(file).is_relative_to(tmp_path / "venv")
    assert run(command, "--version", cwd=tmp_path) == f"quire {quire.__version__}\n"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in ("ab", "c")))
    options = ("--tokenizer", "byte", "--max-length", "16")
    run(command, "pack", "a.jsonl", "--out", "packed", *options, cwd=tmp_path)
    run(command, "verify", "packed", "--inputs", "a.jsonl", "--tokenizer", "byte", cwd=tmp_path)
    manifest = json.loads((tmp_path / "packed" / "manifest.json").read_text())
    assert manifest["ledger"]["documents"]["emitted"] == 2
