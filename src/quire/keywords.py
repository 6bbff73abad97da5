"""Misspelt keywords are errors that name the nearest known one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from quire.errors import unknown_name

P = ParamSpec("P")
R = TypeVar("R")


def names_near_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which answers an unknown keyword with the one that was probably meant.

    >>> names_near_keywords(lambda *, max_length: max_length)(max_lenght=8)
    Traceback (most recent call last):
    quire.errors.InvalidOption: unknown option 'max_lenght'; did you mean 'max_length'?
    known: max_length
    """
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise unknown_name("option", name, known)
        return function(*args, **kwargs)

    return checked
