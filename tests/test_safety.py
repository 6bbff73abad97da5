"""What the source never does, and that every dependency is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from quire.errors import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "src" / "quire").rglob("*.py"))
BANNED_MODULES = {
    "pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "subprocess", "pty",
    "code", "xml", "telnetlib", "ftplib", "smtplib",
}  # fmt: skip
BANNED_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "np.load", "numpy.load",
    "torch.load", "yaml.unsafe_load", "yaml.full_load", "tempfile.mktemp",
}  # fmt: skip
PROBE = "bfloat16.py"
"""The one file that starts a program: this Python, on a fixed text."""
PINNED_BY_NOBODY = {DISTRIBUTION, "pip", "setuptools", "wheel"}
PINNED_BY_NOBODY |= {"quire"}  # the name before 0.2, in an environment that was not made anew
"""This project, and the packages of a new environment."""
DANGERS = {
    "S301": "import pickle\npickle.loads(b'')\n",
    "S307": "eval('1')\n",
    "S102": "exec('1')\n",
    "S506": "import yaml\nyaml.load('1', Loader=yaml.Loader)\n",
    "S602": "import subprocess\nsubprocess.run('x', shell=True)\n",
    "S605": "import os\nos.system('x')\n",
}


def problems(source: str) -> list[str]:
    """Banned constructs in a source file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            names = []
        found += [name for name in names if name.partition(".")[0] in BANNED_MODULES]
        if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in BANNED_CALLS:
            found.append(called)
    return found


def test_no_file_unpickles_evaluates_or_starts_a_program():
    """Fault 50."""
    assert len(FILES) > 200
    found = {str(file): problems(file.read_text(encoding="utf-8")) for file in FILES}
    named = {Path(file).name: names for file, names in found.items() if names}
    assert named == {PROBE: ["subprocess"]}


def test_the_one_program_that_is_started_is_this_python_on_a_fixed_text():
    [file] = [file for file in FILES if file.name == PROBE]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    used = {
        node.attr: ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "subprocess"
    }
    assert set(used) == {"run", "DEVNULL", "TimeoutExpired"}
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "subprocess.run"
    ]
    assert [ast.unparse(call.args[0]) for call in calls] == ["[sys.executable, '-I', '-c', PROBE]"]
    assert "shell" not in {keyword.arg for keyword in calls[0].keywords}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PROBE"
    ]
    assert [type(text) for text in texts] == [ast.Constant]


@pytest.mark.parametrize("source", DANGERS.values())
def test_banned_calls_are_found(source):
    assert problems(source) or "yaml.load" in source  # that one is ruff's


@pytest.mark.parametrize("code", DANGERS)
def test_the_linter_bans_every_dangerous_call(code, tmp_path):
    file = tmp_path / "danger.py"
    file.write_text(DANGERS[code])
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"),
         "--output-format", "concise", str(file)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f" {code} " in done.stdout


def test_no_file_suppresses_these_rules():
    """Except the reader of YAML, whose loader is a restricted SafeLoader."""
    silenced = [
        (file.name, code)
        for file in FILES
        for code in re.findall(r"noqa: (S\d+)", file.read_text(encoding="utf-8"))
    ]
    assert [pair for pair in silenced if pair[1] in DANGERS] == [("config.py", "S506")]


# ---- packages


def plain_name(name: str) -> str:
    """The name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Versions by package in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    said = [line.partition("#")[0].strip() for line in lines]
    pairs = [re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)(\s*;.*)?", line) for line in said if line]
    assert None not in pairs, "a line that pins no exact version"
    return {plain_name(pair[1]): pair[2] for pair in pairs if pair}


def installed() -> dict[str, str]:
    """Versions by package in this environment."""
    return {plain_name(found.metadata["Name"]): found.version for found in metadata.distributions()}


def test_every_package_that_is_installed_is_pinned():
    missing = set(installed()) - set(pins()) - PINNED_BY_NOBODY
    assert missing == set()


def test_every_package_has_the_version_that_is_pinned():
    """Without the part after a plus sign, which names the build."""
    pinned = pins()
    differing = {
        name: (version, pinned[name])
        for name, version in installed().items()
        if name in pinned and version.partition("+")[0] != pinned[name].partition("+")[0]
    }
    assert differing == {}


def test_every_package_that_the_project_requires_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    asked = [*project["dependencies"], *(one for extra in extras for one in extra)]
    names = {plain_name(re.match(r"[A-Za-z0-9._-]+", one)[0]) for one in asked}
    assert names - {DISTRIBUTION} <= set(pins())
