"""The errors that quire raises for anything a user can cause.

Each message names the item, the two values that disagree and the remedy.
"""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Iterable

DISTRIBUTION = "quire-pack"
"""The name of the package on an index, where ``quire`` belongs to an unrelated project."""


class QuireError(Exception):
    """The base of all errors that quire raises on purpose."""


class InvalidOption(QuireError, ValueError):
    """An option has a value that it cannot have."""


class InvalidLengths(QuireError, ValueError):
    """Document lengths are not non-negative integers."""


class InvalidBoundaries(QuireError, ValueError):
    """Document boundaries contradict the row that they describe, or each other."""


class InvalidRow(QuireError, ValueError):
    """A row lacks a column, is too long, or its columns disagree."""


class InvalidDocument(QuireError, ValueError):
    """A document of the input is not what it should be."""


class OversizedDocument(QuireError, ValueError):
    """A document does not fit into a row and may not be cut."""


class StrategyError(QuireError):
    """A registered strategy returned rows that break a rule."""


class PlanError(QuireError, ValueError):
    """A plan contradicts itself or the lengths that it is used with."""


class ModelError(QuireError):
    """A model cannot be loaded or called, or lacks what is needed."""


class CorruptFile(QuireError):
    """A file is damaged, or is not what its name promises."""


class InvalidState(QuireError, ValueError):
    """A saved state is damaged, foreign, or belongs to other options."""


class SourceError(QuireError):
    """A source of documents failed repeatedly."""


class SourceChanged(SourceError):
    """A source returns different documents than before."""


class StorageError(QuireError, OSError):
    """A store cannot be reached, or refuses a request.

    The message has two lines: the place and the problem, then the remedy.
    """


class OutputError(QuireError):
    """An output cannot be written, is in use, or belongs to other options or inputs."""


class WorkerError(QuireError):
    """A worker process died, or failed in a way that quire does not know."""


class InvalidRecipe(QuireError, ValueError):
    """A recipe cannot be read, uses a name that is not allowed, or has a target that fails.

    The message has two lines: the place and the problem, then the remedy.
    """


class MissingDependency(QuireError, ImportError):
    """An optional package is needed and not installed."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> InvalidOption:
    """The error for an unknown name, with the nearest known one.

    >>> print(unknown_name("strategy", "bestfit", ["best_fit", "greedy"]))
    unknown strategy 'bestfit'; did you mean 'best_fit'? known: best_fit, greedy
    """
    known = sorted(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return InvalidOption(f"unknown {kind} {name!r}; {hint}known: {', '.join(known)}")


MOST_DIGITS = 1000
"""Python neither prints much longer integers nor reads them from JSON."""


class _Shortened(reprlib.Repr):
    """Nested anchors can be ten lines of YAML and gigabytes of text; long integers have none."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxdict = 3, 10, 10
        self.maxstring = self.maxlong = self.maxother = 200

    def repr_int(self, x: int, level: int) -> str:
        """The digits of an integer, or about how many it has."""
        if abs(x) < 10**MOST_DIGITS:
            return super().repr_int(x, level)
        return f"an integer of about {int(x.bit_length() * math.log10(2)) + 1:,} digits"


def shown(value: object) -> str:
    """The value in a message, shortened.

    >>> shown(-3), shown(10**5000)
    ('-3', 'an integer of about 5,001 digits')
    """
    return _SHORTENED.repr(value)


_SHORTENED = _Shortened()


def missing_dependency(package: str, purpose: str, extra: str) -> MissingDependency:
    """The error for an optional package that is not installed.

    >>> print(missing_dependency("scipy", "strategy='tight'", "solver"))
    strategy='tight' needs scipy, which is not installed; run: pip install 'quire-pack[solver]'
    """
    return MissingDependency(
        f"{purpose} needs {package}, which is not installed; run: {install_command(extra)}"
    )


def install_command(extra: str) -> str:
    """The command that installs one or several of quire's extras.

    >>> print(install_command("hf,torch"))
    pip install 'quire-pack[hf,torch]'
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"
