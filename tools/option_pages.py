"""A hook of mkdocs: tables of every option of a dataclass, from its fields and their docstrings."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from importlib import import_module
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from quire.cli.options import _field_docs

MARK = re.compile(r"<!-- options (\S+):(\w+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with a table in place of every mark."""
    return MARK.sub(lambda found: table(_kind(found[1], found[2])), markdown)


def table(kind: type) -> str:
    """One line per option: its name, type, default and meaning.

    >>> from quire.ledger import Tally
    >>> print(table(Tally).splitlines()[4])
    | `pending` | int | `0` | Read, but still in a buffer. |
    """
    hints, docs = get_type_hints(kind, include_extras=True), _field_docs(kind)
    rows = [
        _row(one, hints[one.name], docs.get(one.name, ""))
        for one in fields(kind)
        if one.init and one.repr
    ]
    return "\n".join(["| option | type | default | |\n|---|---|---|---|", *rows])


def options_of(kind: type) -> list[Field[Any]]:
    """What a user can set; hidden fields are for quire's own use."""
    return [one for one in fields(kind) if one.init and one.repr]


def _kind(module: str, name: str) -> type:
    found: type = getattr(import_module(module), name)
    return found


def _row(one: Field[Any], hint: Any, text: str) -> str:
    meaning = " ".join(text.replace("``", "`").split()).replace("|", "\\|")
    return f"| `{one.name}` | {_type(hint)} | {_default(one)} | {meaning} |"


def _default(one: Field[Any]) -> str:
    if one.default is not MISSING:
        return f"`{one.default!r}`"
    return "" if one.default_factory is not MISSING else "required"


def _type(hint: Any) -> str:
    """The type as a user of Python or YAML thinks of it."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _type(get_args(hint)[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if origin is tuple:
        return f"list of {_type(get_args(hint)[0])}"
    parts = [_type(part) for part in get_args(hint)]
    if parts and origin is not None and getattr(origin, "__name__", "") in ("UnionType", "Union"):
        return " or ".join(parts)
    return "none" if hint is type(None) else str(getattr(hint, "__name__", hint))
