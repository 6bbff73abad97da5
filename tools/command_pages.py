"""A hook of mkdocs: the page of commands holds the help of every command, as it is now."""

from __future__ import annotations

from typing import Any

import typer

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with the help of all commands in place of the mark."""
    return markdown.replace(MARK, help_of_commands()) if MARK in markdown else markdown


def help_of_commands() -> str:
    """A section for each command, in the order of use: what it does, an example, its options."""
    from quire.cli.app import app

    group: Any = typer.main.get_command(app)
    names = group.list_commands(None)
    return "\n\n".join(_section(name, group.get_command(None, name)) for name in names)


def _section(name: str, command: Any) -> str:
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    lines = [f"## `quire {name}`", *(_paragraph(text) for text in paragraphs)]
    lines.append("| | | default |\n|---|---|---|")
    lines[-1] += "".join(_row(parameter) for parameter in command.params)
    return "\n\n".join(lines)


def _paragraph(text: str) -> str:
    return (
        f"```text\n{text.removeprefix('Example: ')}\n```" if text.startswith("Example: ") else text
    )


def _row(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    is_option = names[0].startswith("-")
    shown = ", ".join(f"`{name}`" for name in names) if is_option else f"`{parameter.name}`"
    text = (getattr(parameter, "help", "") or "").replace("|", "\\|")
    default = parameter.default
    said = (
        "required"
        if parameter.required
        else ""
        if default is None or callable(default)
        else f"`{default}`"
    )
    return f"\n| {shown} | {text} | {said} |"
