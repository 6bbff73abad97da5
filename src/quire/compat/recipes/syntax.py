"""Translates the line statements of recipes to plain Jinja, line by line.

Line n of the output comes from line n of the input, so that later errors can name the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

DEFAULT_PARENT = "types/training_script/causal_lm/causal_lm.yaml"
"""The parent of a recipe that consists of sections and names no parent."""

_STATEMENT = re.compile(r"\s*(--|<<|>>|==|=>)\s+(.*)")
_SECTION = re.compile(r"(\s*)\[([A-Za-z_]\w*)\]\s*")
_COMMENT = re.compile(r"(?<!\S)##")
_FORMS = {
    "--": ("{% ", " %}"),
    "<<": ("{%- ", " %}"),
    ">>": ("{% ", " -%}"),
    "==": ("{{ ", " }}"),
    "=>": ("{{ ", " -}}"),
}


def as_jinja(text: str) -> str:
    """The recipe in Jinja's own syntax; one that opens with a section gets the default parent.

    >>> print(as_jinja("-- if a: ## why\\n== b\\n-- endif"))
    {% if a: %}
    {{ b }}
    {% endif %}
    >>> print(as_jinja("-- extends 'p'\\n[one]\\na: 1\\n[two]\\nb: 2"))
    {% extends 'p' %}
    {% block one %}
    a: 1
    {% endblock one %}{% block two %}
    b: 2{% endblock two %}
    """
    parent = f'{{% extends "{DEFAULT_PARENT}" %}}' if _starts_with_section(text) else ""
    return parent + "\n".join(_lines(text))


def _starts_with_section(text: str) -> bool:
    """Whether the first line with content opens a section: such a recipe names no parent."""
    for line in text.split("\n"):
        content = _without_comment(line).strip()
        if content and not content.startswith("#"):
            return bool(_SECTION.fullmatch(content))
    return False


def _lines(text: str) -> Iterator[str]:
    sections: list[tuple[int, str]] = []
    lines = text.split("\n")
    in_comment = False
    for number, raw in enumerate(lines, 1):
        is_comment, in_comment = in_comment, _leaves_comment_open(raw, in_comment)
        line = raw if is_comment or in_comment else _line(_without_comment(raw), sections)
        yield line + (_closed(sections, -1) if number == len(lines) else "")


def _leaves_comment_open(line: str, is_open: bool) -> bool:
    start = -1 if is_open else line.find("{#")
    if not is_open and start < 0:
        return False
    return line.rfind("{#") > line.rfind("#}") or (is_open and "#}" not in line)


def _line(line: str, sections: list[tuple[int, str]]) -> str:
    if section := _SECTION.fullmatch(line):
        indent, name = len(section[1]), section[2]
        closed = _closed(sections, indent)
        sections.append((indent, name))
        return f"{closed}{{% block {name} %}}"
    if statement := _STATEMENT.fullmatch(line):
        before, after = _FORMS[statement[1]]
        return f"{before}{statement[2].rstrip()}{after}"
    return line


def _closed(sections: list[tuple[int, str]], indent: int) -> str:
    """The end tags of the sections that a section at this indent closes: all but its parents."""
    ends = ""
    while sections and sections[-1][0] >= indent:
        ends += f"{{% endblock {sections.pop()[1]} %}}"
    return ends


def _without_comment(line: str) -> str:
    """The line up to a ``##`` outside quotes.

    >>> _without_comment("a: '1 ## 2' ## two")
    "a: '1 ## 2'"
    """
    for comment in _COMMENT.finditer(line):
        before = line[: comment.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            return before.rstrip()
    return line
