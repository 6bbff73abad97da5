"""Errors of a recipe: the file, the line and the problem on one line, the remedy on the next."""

from __future__ import annotations

from dataclasses import dataclass

from quire.errors import InvalidRecipe


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a file."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}, line {self.line}"


class UnlocatedError(InvalidRecipe):
    """A problem found where the line is unknown; a caller that knows it calls `at`."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}\n{remedy}")
        self.what, self.remedy = what, remedy

    def at(self, location: Location | str) -> InvalidRecipe:
        """The same error with its location."""
        return recipe_error(location, self.what, self.remedy)


def recipe_error(location: Location | str, what: str, remedy: str) -> InvalidRecipe:
    """The error with the location and the problem on one line and the remedy on the next.

    >>> print(recipe_error(Location("a.yaml", 3), "unknown tag !x", "use one of: !var"))
    a.yaml, line 3: unknown tag !x
    use one of: !var
    """
    return InvalidRecipe(f"{location}: {' '.join(what.split())}\n{' '.join(remedy.split())}")
