"""The options of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from quire.errors import InvalidOption
from quire.options import Overlong, PackOptions
from quire.options.names import option, setting
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
    ends_with_eos: bool = False
    """Whether the last token of every document is an added EOS, which is counted as special."""
    min_tail: PositiveLength = 1
    """The fewest new tokens in a document's last fragment; 2 keeps EOS from being alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_room(self, self.prefix, self.min_tail)

    @property
    def row_space(self) -> int:
        """The part of a row that aligned fragments can use."""
        return row_space(self)

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


def row_space(options: PackOptions) -> int:
    """The part of a row that aligned fragments can use.

    >>> row_space(PackOptions(max_length=10, align=4))
    8
    """
    return options.max_length // options.align * options.align


def require_room(options: PackOptions, prefix: int = 0, min_tail: int = 1) -> None:
    """Raise if a row has no room for new tokens after the prefix and the overlap."""
    max_fragment = row_space(options) - prefix
    if max_fragment < 1:
        raise InvalidOption(
            f"a row of {setting('max_length', options.max_length)} has no room for a token after "
            f"BOS (prefix={prefix}, {setting('align', options.align)}); raise "
            f"{option('max_length')} or leave BOS out ({setting('add_bos', False)})"
        )
    most = max_fragment - options.stride
    if options.overlong == "fill" and 2 * options.min_fragment > most + 1 > 1:
        raise InvalidOption(
            f"{setting('min_fragment', options.min_fragment)} is over half of the {most} new "
            f"tokens that a row holds, so cutting a document of {most + 1} would leave a shorter "
            f"piece; lower {option('min_fragment')} to {(most + 1) // 2} or raise "
            f"{option('max_length')}"
        )
    if most < min_tail:
        remedy = f"raise {option('max_length')}"
        remedy = f"lower {option('stride')} or {remedy}" if options.stride else remedy
        tokens = "1 new token" if min_tail == 1 else f"{min_tail} new tokens"
        room = "that holds {} after BOS" if prefix else "of {}"
        raise InvalidOption(
            f"{setting('stride', options.stride)} leaves no room for {tokens} in a row "
            f"{room.format(max_fragment)}; {remedy}"
        )
