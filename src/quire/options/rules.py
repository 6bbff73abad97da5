"""What the value of an option may be: rules that annotations carry, checked by `validate`.

A field says what it takes, such as ``max_length: Positive`` or ``stride: Count = 0``:

>>> rule_of(Positive)("max_length", 0)
Traceback (most recent call last):
quire.errors.InvalidOption: max_length is 0 but must be an integer >= 1
>>> rule_of(Literal["split", "drop"])("overlong", "splitt")
Traceback (most recent call last):
quire.errors.InvalidOption: overlong is 'splitt' but must be one of split, drop; did you mean split?
"""

from __future__ import annotations

import datetime
import difflib
import math
import numbers
import operator
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from quire.errors import MOST_DIGITS, InvalidOption, shown
from quire.options.names import option

LARGEST = (1 << 63) - 1
"""The largest number that the arrays of a plan can hold."""

_TOO_LONG = 10**MOST_DIGITS

Rule: TypeAlias = Callable[[str, object], object]
"""Called with the name and the value of an option; returns the plain value, or raises."""


@dataclass(frozen=True)
class Integer:
    """The rule of an integer. NumPy integers are accepted and become plain ones."""

    least: int
    most: int | None = None

    def __call__(self, name: str, value: object) -> int:
        """The plain integer."""
        return require_integer(name, value, self.least, self.most)


@dataclass(frozen=True)
class Number:
    """The rule of a finite number. NumPy numbers and integers become plain floats."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf

    def __call__(self, name: str, value: object) -> float:
        """The plain float."""
        number = _as_float(value)
        if math.isfinite(number) and self.above < number and self.least <= number <= self.most:
            return number
        limits = ((">=", self.least), (">", self.above), ("<=", self.most))
        rule = " and ".join(f"{sign} {x:g}" for sign, x in limits if math.isfinite(x))
        raise InvalidOption(f"{name} is {shown(value)} but must be a finite number {rule}".rstrip())


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def parse_size(name: str, size: object) -> int:
    """A number of bytes, from a number or from text such as 64K, 256M or 1G.

    >>> parse_size("partition_size", "256M"), parse_size("partition_size", 1000)
    (268435456, 1000)
    """
    if not isinstance(size, str):
        return require_integer(name, size, 1, LARGEST)
    match = re.fullmatch(r"(\d{1,30})([KMG]?)(?:i?B)?", size.strip(), flags=re.IGNORECASE)
    if match is None:
        raise InvalidOption(
            f"{name} is {shown(size)} but must be a size in bytes, such as 64K, 256M or 1G"
        )
    num_bytes = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]
    return require_integer(name, num_bytes, 1, LARGEST)


Positive = Annotated[int, Integer(1)]
Count = Annotated[int, Integer(0)]
Seed = Count
Size = Annotated[int, parse_size]
"""Bytes: an integer, or text such as "256M"."""


def iso_date(name: str, value: object) -> str:
    """A date in ISO form, from a date or from text."""
    date = value.isoformat() if type(value) is datetime.date else value
    try:
        return datetime.date.fromisoformat(date).isoformat()  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f"{name} is {value!r} but must be an ISO date such as '2026-11-18'"
        ) from error


def regular_expression(name: str, value: object) -> str:
    """The pattern, if it can be compiled."""
    pattern = require_string(name, value)
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidOption(
            f"{name} is {pattern!r}, which is not a regular expression: {error}"
        ) from error
    return pattern


ChatDate = Annotated[datetime.date | str, iso_date]
Pattern = Annotated[str, regular_expression]
Length = Annotated[int, Integer(0, LARGEST)]
PositiveLength = Annotated[int, Integer(1, LARGEST)]


def validate(options: Any) -> None:  # noqa: ANN401 - any dataclass
    """Check the fields of a dataclass against their annotations, and make their values plain.

    Rules are known for ``bool``, ``int``, ``float``, ``str``, ``Literal``, ``tuple[..., ...]``,
    ``Annotated[..., rule]`` and any of them ``| None``. Other fields are not checked.
    """
    kind: type = type(options)
    for name, rule in _rules(kind).items():
        value = getattr(options, name)
        plain = rule(option(name), value)
        if plain is not value:
            object.__setattr__(options, name, plain)


@cache
def _rules(kind: type) -> dict[str, Rule]:
    hints = get_type_hints(kind, include_extras=True)
    rules = {field.name: rule_of(hints[field.name]) for field in fields(kind)}
    return {name: rule for name, rule in rules.items() if rule is not None}


def rule_of(hint: Any) -> Rule | None:  # noqa: ANN401 - any annotation
    """The rule of an annotation, if it has one.

    >>> rule_of(int | None)("rows", 3)
    3
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((part for part in parts[1:] if callable(part)), None)
    if origin is Literal:
        return partial(require_choice, choices=parts)
    if origin is tuple:
        return partial(_plain_items, rule=rule_of(parts[0]))
    if origin in (Union, types.UnionType):
        inner = [part for part in parts if part is not types.NoneType]
        rule = rule_of(inner[0]) if len(inner) == 1 else None
        return rule and partial(_unless_none, rule=rule)
    return _RULES.get(hint)


def _unless_none(name: str, value: object, rule: Rule) -> object:
    return None if value is None else rule(name, value)


def _plain_items(name: str, value: object, rule: Rule | None) -> tuple[object, ...]:
    items = require_items(name, value)
    if rule is None:
        return tuple(items)
    return tuple(rule(f"{name}[{number}]", item) for number, item in enumerate(items))


def require_items(name: str, value: object) -> Sequence[object]:
    """The value if it is a list or a tuple."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise InvalidOption(f"{name} is {shown(value)} but must be a list")
    return value


def require_choice(name: str, value: object, choices: Sequence[object]) -> object:
    """The value if it is one of the choices; the error names the nearest one."""
    if value in choices and not isinstance(value, bool):
        return value
    known = [str(choice) for choice in choices]
    near = difflib.get_close_matches(value if isinstance(value, str) else "", known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidOption(f"{name} is {shown(value)} but must be one of {', '.join(known)}{hint}")


def require_flag(name: str, value: object) -> bool:
    """The value if it is True or False; the text "no" would mean yes."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{name} is {shown(value)} but must be True or False")
    return value


def require_flags(options: Any) -> None:  # noqa: ANN401 - any dataclass
    """Raise if a field declared a bool is not one; for classes that `validate` cannot read."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.type == "bool" or (field.type == "bool | None" and value is not None):
            require_flag(field.name, value)


def require_string(name: str, value: object) -> str:
    """The value if it is a string."""
    if not isinstance(value, str):
        raise InvalidOption(f"{name} is {shown(value)} but must be a string")
    return value


def require_path(name: str, value: object) -> None:
    """Raise unless the value names a local file or folder.

    >>> require_path("cache_dir", 5)
    Traceback (most recent call last):
    quire.errors.InvalidOption: cache_dir is 5 but must be a string or a Path
    """
    if not isinstance(value, str | os.PathLike):
        raise InvalidOption(f"{name} is {value!r} but must be a string or a Path")


def is_integer(value: object) -> TypeGuard[int]:
    """Whether this is an integer of Python or NumPy, and not a bool."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def require_integer(
    name: str, value: object, least: int | None = None, most: int | None = None
) -> int:
    """The value as a plain int, if it is an integer in this range.

    >>> require_integer("max_length", 0, least=1)
    Traceback (most recent call last):
    quire.errors.InvalidOption: max_length is 0 but must be an integer >= 1
    """
    number = _as_integer(value)
    if number is None or (least is not None and number < least):
        rule = "" if least is None else f" >= {least}"
        raise InvalidOption(f"{name} is {shown(value)} but must be an integer{rule}")
    if most is not None and number > most:
        raise InvalidOption(f"{name} is {shown(number)} but must be at most {most}")
    return require_short(name, number)


def _as_integer(value: object) -> int | None:
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def require_short(name: str, number: int) -> int:
    """The number, unless it is so long that Python can neither print it nor read it from JSON."""
    if abs(number) >= _TOO_LONG:
        raise InvalidOption(
            f"{name} is {shown(number)} but must have at most {MOST_DIGITS}; choose a smaller one"
        )
    return number


_RULES: Mapping[Any, Rule] = {
    bool: require_flag,
    int: require_integer,
    float: Number(),
    str: require_string,
}
