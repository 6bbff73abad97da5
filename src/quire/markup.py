"""HTML for notebooks: tables of figures and rows drawn as blocks; every text is escaped.

Colors are translucent and text has the color of its surroundings, so both color schemes work.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from quire.printable import printable

HUES = (190, 40, 130, 300, 230, 0)
"""Hues of neighbouring fragments, in turn."""
_BAR = (
    "position:relative;height:1.1em;margin:2px 0;background:rgba(128,128,128,.18);"
    "border-radius:2px;overflow:hidden"
)
_TEXT = "font:13px/1.5 ui-monospace,monospace"


def escaped(text: object) -> str:
    """Text that no browser takes for markup and no terminal for commands.

    >>> escaped("<b>\\x1b")
    '&lt;b&gt;\\\\x1b'
    """
    return html.escape(printable(str(text), keep="\n\t"))


def block(content: Iterable[str]) -> str:
    """Elements in one frame."""
    return f'<div style="{_TEXT};max-width:100%">{"".join(content)}</div>'


def figures(title: str, values: Mapping[str, object]) -> str:
    """A title and a table of names and values; numbers have thousands separators.

    >>> "<td style='padding:0 1em 0 0'>rows</td>" in figures("Plan", {"rows": 1200})
    True
    """
    rows = "".join(
        f"<tr><td style='padding:0 1em 0 0'>{escaped(name)}</td>"
        f"<td style='text-align:left'>{escaped(_shown(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<b>{escaped(title)}</b><table style='{_TEXT};margin:.3em 0'>{rows}</table>"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def row_bar(fragments: Sequence[tuple[int, int, str]], length: int) -> str:
    """A row as blocks of (start, stop, what it is); the rest of ``length`` is padding."""
    width = max(1, length)
    blocks = "".join(
        f"<span title='{escaped(name)}' style='position:absolute;top:0;bottom:0;"
        f"left:{100 * start / width:.3f}%;width:{100 * (stop - start) / width:.3f}%;"
        f"background:{color(number)};box-shadow:inset -1px 0 rgba(128,128,128,.9)'></span>"
        for number, (start, stop, name) in enumerate(fragments)
    )
    return f"<div style='{_BAR}'>{blocks}</div>"


def color(number: int) -> str:
    """The color of a fragment by its place in the row."""
    return f"hsla({HUES[number % len(HUES)]},70%,50%,.45)"
