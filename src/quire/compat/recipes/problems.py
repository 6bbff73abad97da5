"""Where in a recipe something stands, and the error that says so in two lines."""

from __future__ import annotations

from dataclasses import dataclass

from quire.errors import InvalidRecipe


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}, line {self.line}"


class Unplaced(InvalidRecipe):
    """A problem that was found where no line is known; whoever knows the line adds it."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n{remedy}")
        self.what, self.remedy = what, remedy

    def at(self, place: Place | str) -> InvalidRecipe:
        """The same, with its place."""
        return problem(place, self.what, self.remedy)


def problem(place: Place | str, what: str, remedy: str) -> InvalidRecipe:
    """The error that names the place and the problem in one line and the remedy in the next.

    >>> print(problem(Place("a.yaml", 3), "unknown tag !x", "use one of: !var"))
    a.yaml, line 3: unknown tag !x
    use one of: !var
    """
    said = " ".join(what.split())
    return InvalidRecipe(f"{place}: {said}\n{' '.join(remedy.split())}")
