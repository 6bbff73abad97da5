"""Which test carries the number of which fault: in its name, its docstring or one of its cases."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_IN_NAME = re.compile(r"_(\d\d)(?=_)")
_IN_TEXT = re.compile(r"\b[Ff]aults? (\d+(?:(?:,| and| to|,? and) \d+)*)")
_PART = re.compile(r"(\d+)(?: to (\d+))?")


def numbers_in_name(name: str) -> set[int]:
    """The faults in the name of a test.

    >>> sorted(numbers_in_name("test_37_38_killed_between_any_two"))
    [37, 38]
    >>> numbers_in_name("test_001_5_a_seed_s_example"), numbers_in_name("test_twice_10_times")
    (set(), set())
    """
    head = re.match(r"test(?:_fault)?(?:_\d\d)+_", name)
    return {int(number) for number in _IN_NAME.findall(head.group(0))} if head else set()


def numbers_in_text(text: str) -> set[int]:
    """The faults that a text names.

    >>> sorted(numbers_in_text("Faults 1 to 3, 12 and 14: one reader serves both; no default 7."))
    [1, 2, 3, 12, 14]
    """
    found: set[int] = set()
    for list_of_numbers in _IN_TEXT.findall(text):
        for first, last in _PART.findall(list_of_numbers):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def find_tests(folder: Path) -> dict[int, list[str]]:
    """`path::test` of all tests below a folder, by the numbers that they carry, best first.

    A number in a name comes before one in a docstring, and that before one in a case.
    """
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        for rank, number, name in _of_module(ast.parse(path.read_text(encoding="utf-8"))):
            found[number].append((rank, f"{path.relative_to(folder.parent).as_posix()}::{name}"))
    return {number: [test for _, test in sorted(set(tests))] for number, tests in found.items()}


def _of_module(module: ast.Module) -> Iterator[tuple[int, int, str]]:
    about_all = numbers_in_text(ast.get_docstring(module) or "")
    tests = [node for node in ast.walk(module) if _is_test(node)]
    tables = _tables(module)
    for test in tests:
        yield from ((0, number, test.name) for number in numbers_in_name(test.name))
        said = numbers_in_text(ast.get_docstring(test) or "")
        yield from ((1, number, test.name) for number in said)
        cases = numbers_in_text(" ".join(_strings(test))) | _numbers_of(test, tables)
        yield from ((2, number, test.name) for number in cases - said)
        yield from ((3, number, test.name) for number in about_all)


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_")


def _tables(module: ast.Module) -> dict[str, set[int]]:
    """The faults in the cases in a variable of the module."""
    found = {}
    for node in module.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = numbers_in_text(" ".join(_strings(node)))
    return found


def _numbers_of(test: ast.AST, tables: dict[str, set[int]]) -> set[int]:
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    return set().union(*(tables.get(name, set()) for name in names))


def _strings(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
