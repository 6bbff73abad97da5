"""The options of a plan, declared once; they travel whole."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from quire.errors import InvalidOption, require_flags, require_short, shown, unknown_name
from quire.plan.lengths import IntArray

OVERLONG = ("split", "truncate", "truncate_left", "drop", "error", "fill")


LARGEST = (1 << 63) - 1
"""What the arrays of a plan can count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """How documents become rows."""

    capacity: int
    """Places in a row."""
    strategy: str = "best_fit"
    """A name from the table of strategies."""
    overlong: str = "split"
    """What happens to a document that is longer than a row; ``fill`` also cuts to close gaps."""
    stride: int = 0
    """Tokens of the document repeated at the start of each continuation."""
    prefix: int = 0
    """Places kept free before every fragment, for BOS."""
    min_length: int = 1
    """Rows with fewer tokens are dropped and counted."""
    min_fragment: int = 1
    """The shortest piece that ``fill`` may cut."""
    min_tail: int = 1
    """The fewest new tokens in a document's last fragment; 2 keeps EOS from standing alone."""
    max_documents_per_row: int | None = None
    """The most fragments in a row."""
    align: int = 1
    """The space of every fragment is rounded up to a multiple of this; rows stay dense."""
    shuffle: bool = False
    """Whether rows are put in random order."""
    seed: int | None = 0
    """Seeds the shuffle; None draws new entropy each time."""

    def __post_init__(self) -> None:
        # Of these two, any number has a meaning: a row may hold more than there is.
        settle_integers(self, {"capacity": 1, "seed": 0})
        settle_integers(self, _LEAST, most=LARGEST)
        require_flags(self)
        if not isinstance(self.strategy, str):
            raise InvalidOption(f"unknown strategy {self.strategy!r}; give the name of one")
        if self.overlong not in OVERLONG:
            raise unknown_name("overlong policy", self.overlong, OVERLONG)
        if self.min_length > self.capacity:
            raise InvalidOption(
                f"min_length={self.min_length} would drop every row, as a row holds at most "
                f"{self.capacity} tokens; lower min_length or raise capacity"
            )
        self._require_room()

    def _require_room(self) -> None:
        if self.align > self.capacity:
            raise InvalidOption(
                f"align={self.align} is more than the {self.capacity} places of a row; lower align "
                "or raise capacity"
            )
        if self.max_fragment < 1:
            raise InvalidOption(
                f"prefix={self.prefix} and align={self.align} leave no room for a token in a row "
                f"of capacity {self.capacity}; raise capacity or lower prefix or align"
            )
        most = self.max_fragment - self.stride
        if self.overlong == "fill" and 2 * self.min_fragment > most + 1 > 1:
            raise InvalidOption(
                f"min_fragment={self.min_fragment} is over half of the {most} new tokens that a "
                f"row holds, so a document of {most + 1} could not be cut without a shorter piece; "
                f"lower min_fragment to {(most + 1) // 2} or raise capacity"
            )
        if most < self.min_tail:
            remedy = "lower stride or raise capacity" if self.stride else "raise capacity"
            beside = "that holds {} beside the prefix" if self.prefix else "of {}"
            raise InvalidOption(
                f"stride={self.stride} leaves no room for {self.min_tail} new token(s) in a row "
                f"{beside.format(self.max_fragment)}; {remedy}"
            )

    @property
    def row_space(self) -> int:
        """The part of the capacity that aligned fragments can use.

        >>> PlanOptions(capacity=10, align=4).row_space
        8
        """
        return self.capacity // self.align * self.align

    @property
    def cutting_terms(self) -> tuple[object, ...]:
        """Whatever makes a cut cost space."""
        return self.stride, self.prefix, self.min_tail, self.max_documents_per_row, self.align

    @property
    def max_fragment(self) -> int:
        """The longest fragment that fits into an empty row."""
        return self.row_space - self.prefix

    def spaces(self, lengths: IntArray) -> IntArray:
        """The places that fragments of these lengths take up in a row.

        >>> import numpy as np
        >>> PlanOptions(capacity=16, align=4, prefix=1).spaces(np.array([3, 4]))
        array([4, 8])
        """
        if self.prefix:
            lengths = lengths + self.prefix
        return lengths if self.align == 1 else -(-lengths // self.align) * self.align


_LEAST = {
    "stride": 0,
    "prefix": 0,
    "min_length": 1,
    "min_fragment": 1,
    "min_tail": 1,
    "max_documents_per_row": 1,
    "align": 1,
}


def settle_integers(options: Any, least: Mapping[str, int], most: int | None = None) -> None:  # noqa: ANN401 - any dataclass
    """Make the named fields of a dataclass plain ints, or raise; None stays where it may stand.

    An int of numpy is an integer too, but no state and no manifest can hold one.

    >>> import numpy as np
    >>> @dataclass(frozen=True)
    ... class Options:
    ...     seed: int = 0
    >>> options = Options(seed=np.int64(3))
    >>> settle_integers(options, {"seed": 0})
    >>> options
    Options(seed=3)
    """
    declared = {field.name: str(field.type) for field in fields(options)}
    for name, smallest in least.items():
        value = getattr(options, name)
        if value is not None or "None" not in declared[name]:
            object.__setattr__(options, name, require_integer(name, value, smallest, most))


def require_integer(name: str, value: object, least: int, most: int | None = None) -> int:
    """The value as an int, if it is an integer of at least (and at most) the given size.

    >>> require_integer("capacity", 0, least=1)
    Traceback (most recent call last):
    quire.errors.InvalidOption: capacity is 0 but must be an integer >= 1
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise InvalidOption(f"{name} is {shown(value)} but must be an integer >= {least}")
    if most is not None and number > most:
        raise InvalidOption(f"{name} is {shown(number)} but must be at most {most}")
    return require_short(name, number)
