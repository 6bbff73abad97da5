"""Every python and bash block in README and docs runs, from top to bottom of its page.

Blocks of other kinds show output, YAML or pictures of text.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
UNMARKED = re.compile(r"^```\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def blocks(page: Path) -> str:
    """All blocks of a page as one script; bash blocks run in a shell."""
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return "\n".join(code if kind == "python" else _shell(code) for kind, code in found)


def _shell(code: str) -> str:
    return f"import subprocess\nsubprocess.run(['bash', '-euc', {code!r}], check=True)\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name
)
def test_the_code_of_a_page_runs(page, tmp_path):
    script = tmp_path / "page.py"
    script.write_text(blocks(page), encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": commands, "QUIRE_CACHE": str(tmp_path / ".cache")},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_command_is_in_a_block_that_is_not_run(page):
    for block in UNMARKED.findall(page.read_text(encoding="utf-8")):
        assert not re.search(r"^(\$ )?(quire|python|pip) ", block, flags=re.MULTILINE), block


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_is_linked_from_the_readme_and_named_on_a_page(example):
    if example.name in ("standard_library.py", "source_texts.py"):
        return  # what others import
    assert f"(examples/{example.name})" in PAGES[0].read_text(encoding="utf-8")
    pages = [page.read_text(encoding="utf-8") for page in PAGES[1:]]
    assert any(f"examples/{example.name}" in page for page in pages)


def test_pages_have_code():
    assert blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_have_targets(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_architecture_page_names_modules_that_exist():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    packages = {path.stem for path in (ROOT / "src/quire").iterdir()}
    for name in re.findall(r"`([a-z_]+(?:\.[a-zA-Z_]+)+)`", text):
        parts = name.split(".")
        if parts[0] in packages and parts[-1] != "py":
            source = ROOT / "src/quire" / Path(*parts)
            holder = source if source.is_dir() else source.with_suffix(".py")
            function = source.parent.with_suffix(".py")
            is_function = function.exists() and parts[-1] in function.read_text(encoding="utf-8")
            assert holder.exists() or is_function, name
