"""Command-line options are generated from the fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from quire.cli.options import options_of
from quire.options import Number, Options, Positive, Size


@dataclass(frozen=True, kw_only=True)
class Shape(Options):
    """How rows are made: nothing else."""

    length: Positive
    """The most ``tokens`` in a row."""
    mode: Literal["split", "drop"] = "split"
    """What happens to long documents."""
    limit: Positive | None = None
    """The most documents. None: no limit."""
    size: Size = 2048
    """Bytes at a time."""
    ratio: Annotated[float, Number(above=0)] = 0.5
    """A part."""
    columns: tuple[str, ...] | None = None
    """A column; may be repeated."""
    name: str | None = "tools"
    """A name; '' is none."""
    shuffle: bool | None = None
    """Shuffle rows. None: sometimes."""
    index_only: bool = False
    """Write no rows."""
    hidden: int = 0
    """Left out."""


seen: list[dict[str, Any]] = []
app = typer.Typer()


@app.command()
@options_of(Shape, leave_out=["hidden"])
def pack(path: str, *, options: dict[str, Any], last: int = 3) -> None:
    """Pack."""
    seen.append({"path": path, "last": last, **options})


@app.command()
@options_of(Shape, only_given=True, unset="as before")
def change(*, options: dict[str, Any]) -> None:
    """Change."""
    seen.append(options)


@app.command()
@options_of(Shape, only_given=True)
def open_(*, options: dict[str, Any]) -> None:
    """Open."""
    seen.append(options)


def run(*arguments: str) -> tuple[int, str]:
    seen.clear()
    result = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    return result.exit_code, result.output


def test_values_that_are_not_given_are_the_defaults_of_the_class():
    assert run("pack", "a", "--length", "8")[0] == 0
    own = {"path": "a", "last": 3}
    (given,) = seen
    options = Shape(**{name: value for name, value in given.items() if name not in own})
    assert options == Shape(length=8)


def test_given_values_arrive_as_the_class_takes_them():
    more = [
        "--mode",
        "drop",
        "--limit",
        "3",
        "--size",
        "1M",
        "--ratio",
        "0.25",
        "--no-shuffle",
        "--index-only",
    ]
    code, _ = run(
        *("pack", "a", "--length", "8", "--column", "x", "--column", "y"),
        *("--name", "", "--last", "4", *more),
    )
    assert code == 0
    (given,) = seen
    assert (given.pop("path"), given.pop("last")) == ("a", 4)
    assert Shape(**given) == Shape(
        length=8, mode="drop", limit=3, size=1 << 20, ratio=0.25, columns=("x", "y"), name=None,
        shuffle=False, index_only=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--length"),
        (["--length", "0"], "greater than or equal to 1"),
        (["--length", "8", "--mode", "x"], "'x' is not one of"),
        (["--length", "8", "--hidden", "1"], "No such option"),
        (["--length", "8", "--no-index-only"], "No such option"),
    ],
)
def test_wrong_values_are_usage_errors(arguments, message):
    code, text = run("pack", "a", *arguments)
    assert code == 2
    assert message in text


def test_the_help_shows_docstrings_choices_and_defaults():
    text = " ".join(run("pack", "--help")[1].split())
    assert "Output" in text
    assert "The most tokens in a row." in text
    assert "split|drop" in text
    assert "no limit" in text
    assert "2K" in text
    assert "None" not in text


def test_only_changes_are_passed_where_no_option_has_a_default():
    assert run("change", "--limit", "3", "--no-shuffle")[0] == 0
    assert seen == [{"limit": 3, "shuffle": False}]
    assert "as before" in run("change", "--help")[1]


def test_the_defaults_of_the_class_are_shown_where_they_are_not_passed():
    assert run("open-", "--index-only")[0] == 0
    assert seen == [{"index_only": True}]
    text = run("open-", "--help")[1]
    assert all(default in text for default in ("split", "no limit", "2K", "0.5", "sometimes"))
    assert "(0)" in text  # of the option --hidden, which is no flag
