"""How large the code is: lines of code, modules and public names, in total and by package.

    python -m tools.size              # src/quire
    python -m tools.size src/quire/plan

A line of code is one that holds a token of code: docstrings, comments and blank lines do not count.
A public name is an entry of an ``__all__``, counted once however many packages export it.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Lines with code on them.

    >>> code_lines('\"\"\"A module.\"\"\"\\n\\nx = 1  # one\\n# two\\ny = [\\n    2,\\n]\\n')
    4
    """
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for first, last in _strings_alone(ast.parse(source)):
        lines.difference_update(range(first, last + 1))
    return len(lines)


def _strings_alone(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Line ranges of docstrings, those below a field included."""
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            yield node.lineno, node.end_lineno or node.lineno


def public_names(source: str) -> set[str]:
    """The entries of ``__all__``.

    >>> sorted(public_names('__all__ = ["b", "a"]'))
    ['a', 'b']
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def main() -> None:
    """Print a line for each package and the total."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/quire")
    lines, modules, names = Counter[str](), Counter[str](), defaultdict[str, set[str]](set)
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        package = parts[0] if len(parts) > 1 else "."
        source = path.read_text()
        lines[package] += code_lines(source)
        modules[package] += 1
        names[package] |= public_names(source)
    print(f"{'package':<16}{'code lines':>12}{'modules':>10}{'public names':>14}")
    for package in sorted(lines):
        print(f"{package:<16}{lines[package]:>12,}{modules[package]:>10}{len(names[package]):>14}")
    print(
        f"{'total':<16}{lines.total():>12,}{modules.total():>10}{len(set().union(*names.values())):>14}"
    )


if __name__ == "__main__":
    main()
