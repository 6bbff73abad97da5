"""``--help`` of a command: its options in panels, with the types that a person would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.core import TyperCommand

COMMON = "Common options"
PANELS = (COMMON, "Input", "Tokens", "Packing", "Output", "Running")
"""The order of panels; others follow."""
_IN_COMMON = (
    *("out", "tokenizer", "max_length", "record_kind", "strategy", "overlong"),
    *("batch_size", "workers", "resume", "estimate", "to"),
)
_TYPES = {int: "N", float: "X", str: "TEXT", list[str]: "TEXT", Path: "PATH", list[int]: "N"}
_TYPES_OF = {
    **dict.fromkeys(("tokenizer", "out", "inputs", "config", "state"), "PATH"),
    **dict.fromkeys(("plan", "name", "strategy"), "NAME"),
    **dict.fromkeys(("chat_date",), "DATE"),
    **dict.fromkeys(("truncate_at", "pattern"), "PATTERN"),
}


class HelpPage(TyperCommand):
    """A command whose ``--help`` lists its options by panel, the common ones first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
        """Write the panels."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if parameter.metavar is None:
                parameter.metavar = _type_of(parameter)
            if record := parameter.get_help_record(ctx):
                groups.setdefault(_panel_of(parameter), []).append(record)
        known = [name for name in ("Arguments", *PANELS) if name in groups]
        for name in dict.fromkeys([*known, *groups]):
            with formatter.section(name):
                formatter.write_dl(groups[name])


def _panel_of(parameter: Any) -> str:  # noqa: ANN401 - typer's own
    if parameter.param_type_name == "argument":
        return "Arguments"
    if parameter.name in _IN_COMMON:
        return COMMON
    return getattr(parameter, "rich_help_panel", None) or ("Running" if parameter.name else "")


def _type_of(parameter: Any) -> str | None:  # noqa: ANN401 - typer's own
    """The placeholder for a value: N, PATH, COLUMN; None for flags, choices and arguments."""
    if parameter.param_type_name == "argument" or getattr(parameter, "is_flag", False):
        return None
    name = parameter.name or ""
    if name.endswith("_column") or name == "columns":
        return "COLUMN"
    kind = parameter.type_descriptor.annotation
    return _TYPES_OF.get(name, _TYPES[kind]) if kind in _TYPES else None
