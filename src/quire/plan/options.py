"""The options of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from quire.errors import InvalidOption
from quire.options import LARGEST, Integer, Positive, Seed, validate
from quire.plan.lengths import IntArray

Overlong: TypeAlias = Literal["split", "truncate", "truncate_left", "drop", "error", "fill"]
_Count = Annotated[int, Integer(0, LARGEST)]
_Positive = Annotated[int, Integer(1, LARGEST)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """How documents are packed into rows."""

    max_length: Positive
    """The most tokens in a row."""
    strategy: str = "best_fit"
    """The packing algorithm; see `strategy_names`."""
    overlong: Overlong = "split"
    """What to do with documents longer than a row; ``fill`` also cuts documents to close gaps."""
    stride: _Count = 0
    """Tokens of the previous fragment repeated at the start of the next."""
    prefix: _Count = 0
    """Tokens reserved before every fragment, for BOS."""
    min_length: _Positive = 1
    """Rows with fewer tokens are dropped and counted."""
    min_fragment: _Positive = 1
    """The fewest tokens in a piece that ``fill`` cuts."""
    min_tail: _Positive = 1
    """The fewest new tokens in a document's last fragment; 2 keeps EOS from being alone."""
    max_documents_per_row: _Positive | None = None
    """The most fragments in a row."""
    align: _Positive = 1
    """The space of every fragment is rounded up to a multiple of this; rows stay dense."""
    shuffle: bool = False
    """Whether to put the rows in random order."""
    seed: Seed | None = 0
    """Seeds the shuffle; None draws new entropy each time."""

    def __post_init__(self) -> None:
        validate(self)
        if self.min_length > self.max_length:
            raise InvalidOption(
                f"min_length={self.min_length} would drop every row because a row holds at most "
                f"{self.max_length} tokens; lower min_length or raise max_length"
            )
        self._require_room()

    def _require_room(self) -> None:
        if self.align > self.max_length:
            raise InvalidOption(
                f"align={self.align} is more than the {self.max_length} tokens of a row; lower "
                "align or raise max_length"
            )
        if self.max_fragment < 1:
            raise InvalidOption(
                f"prefix={self.prefix} and align={self.align} leave no room for a token in a row "
                f"of max_length {self.max_length}; raise max_length or lower prefix or align"
            )
        most = self.max_fragment - self.stride
        if self.overlong == "fill" and 2 * self.min_fragment > most + 1 > 1:
            raise InvalidOption(
                f"min_fragment={self.min_fragment} is over half of the {most} new tokens that a "
                f"row holds, so cutting a document of {most + 1} would leave a shorter piece; "
                f"lower min_fragment to {(most + 1) // 2} or raise max_length"
            )
        if most < self.min_tail:
            remedy = "lower stride or raise max_length" if self.stride else "raise max_length"
            tokens = "1 new token" if self.min_tail == 1 else f"{self.min_tail} new tokens"
            room = "that holds {} after the prefix" if self.prefix else "of {}"
            raise InvalidOption(
                f"stride={self.stride} leaves no room for {tokens} in a row "
                f"{room.format(self.max_fragment)}; {remedy}"
            )

    @property
    def row_space(self) -> int:
        """The part of a row that aligned fragments can use.

        >>> PlanOptions(max_length=10, align=4).row_space
        8
        """
        return self.max_length // self.align * self.align

    @property
    def cuts_are_free(self) -> bool:
        """Whether a document can be cut anywhere without losing space."""
        terms = self.stride, self.prefix, self.min_tail, self.max_documents_per_row, self.align
        return terms == (0, 0, 1, None, 1)

    @property
    def max_fragment(self) -> int:
        """The longest fragment that fits into an empty row."""
        return self.row_space - self.prefix

    def spaces(self, lengths: IntArray) -> IntArray:
        """The space that fragments of these lengths take in a row.

        >>> import numpy as np
        >>> PlanOptions(max_length=16, align=4, prefix=1).spaces(np.array([3, 4]))
        array([4, 8])
        """
        if self.prefix:
            lengths = lengths + self.prefix
        return lengths if self.align == 1 else -(-lengths // self.align) * self.align
