"""The line statements in which recipes are written, as plain Jinja, line for line.

A line of the output is the same line of the input, so that every later error can name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

DEFAULT_PARENT = "types/training_script/causal_lm/causal_lm.yaml"
"""What a recipe of sections extends when it names no parent."""

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
    """The recipe in Jinja's own syntax; a recipe of sections alone gets the default parent.

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
    """Whether the first line that says anything opens a section: such a recipe has no parent."""
    for line in text.split("\n"):
        said = _without_comment(line).strip()
        if said and not said.startswith("#"):
            return bool(_SECTION.fullmatch(said))
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
    """The ends of the sections that a section at this indent closes: all but those around it."""
    ends = ""
    while sections and sections[-1][0] >= indent:
        ends += f"{{% endblock {sections.pop()[1]} %}}"
    return ends


def _without_comment(line: str) -> str:
    """The line up to a ``##`` that stands outside quotes.

    >>> _without_comment("a: '1 ## 2' ## two")
    "a: '1 ## 2'"
    """
    for comment in _COMMENT.finditer(line):
        before = line[: comment.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            return before.rstrip()
    return line
