"""Every example in a docstring of quire, its tools and its tests prints what it says.

The examples are found by parsing, so that collecting them imports nothing; a module is imported
when its examples run.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [file for part in ("src", "tools", "tests") for file in sorted((ROOT / part).rglob("*.py"))]
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def module_of(file: Path) -> str:
    """The name by which the file is imported."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part not in ("src", "__init__"))


def doctests(file: Path, text: str) -> Iterator[doctest.DocTest]:
    """The examples of a file, one test for each docstring that has some."""
    tree = ast.parse(text)
    names: dict[ast.AST, str] = {tree: module_of(file)}
    for node in ast.walk(tree):  # a node comes before those in it
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, DOCUMENTED)
            names[child] = f"{names[node]}.{child.name}" if named else names[node]
        said = ast.get_docstring(node, clean=False) if isinstance(node, DOCUMENTED) else None
        if said and PROMPT.search(said):
            first = node.body[0].lineno - 1
            yield doctest.DocTestParser().get_doctest(said, {}, names[node], str(file), first)


FOUND = [
    found
    for file in FILES
    if PROMPT.search(text := file.read_text(encoding="utf-8"))
    for found in doctests(file, text)
]


@pytest.mark.usefixtures("registered")  # an example registers a strategy
@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.name)
def test_a_docstring_shows_what_its_examples_print(found):
    module = importlib.import_module(module_of(Path(found.filename)))
    found.globs = {**vars(module), "__name__": "__main__"}
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(found, out=told.append)
    assert not told, "".join(told)


def test_no_example_is_overlooked():
    written = sum(len(PROMPT.findall(file.read_text(encoding="utf-8"))) for file in FILES)
    assert sum(len(found.examples) for found in FOUND) == written
