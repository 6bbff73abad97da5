"""The options of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from quire.errors import InvalidOption
from quire.options import Overlong, PackOptions
from quire.options.rules import Length, PositiveLength
from quire.plan.lengths import IntArray

__all__ = ["Overlong", "PlanOptions"]


@dataclass(frozen=True, kw_only=True)
class PlanOptions(PackOptions):
    """How documents are packed into rows: `PackOptions`, and what the tokenizer's specials need."""

    shuffle: bool = False
    """Put the rows in random order."""
    prefix: Length = 0
    """Tokens reserved before every fragment, for BOS."""
    min_tail: PositiveLength = 1
    """The fewest new tokens in a document's last fragment; 2 keeps EOS from being alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_fragment < 1:
            raise InvalidOption(
                f"a row of max_length={self.max_length} has no room for a token after BOS "
                f"(prefix={self.prefix}, align={self.align}); raise max_length or leave BOS out "
                "(add_bos=False, --no-add-bos)"
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
            room = "that holds {} after BOS" if self.prefix else "of {}"
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
