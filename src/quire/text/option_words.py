"""The planner's errors in the words of those who pack: its prefix is their BOS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from quire.errors import InvalidOption, OversizedDocument

_WORDS = (
    ("prefix=1 and align=1 leave", "BOS leaves"),
    ("lower prefix or align", "leave BOS out (add_bos=False, or quire pack --no-add-bos)"),
    ("(the )?prefix", "BOS"),
)


@contextmanager
def words_of_packing() -> Iterator[None]:
    """Errors of the planner come out of the block with the names that options have in packing.

    >>> from quire import make_plan
    >>> with words_of_packing():
    ...     make_plan([3], max_length=1, prefix=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    quire.errors.InvalidOption: BOS leaves ...
    """
    try:
        yield
    except (InvalidOption, OversizedDocument) as error:
        error.args = (in_words_of_packing(str(error)),)
        raise


def in_words_of_packing(message: str) -> str:
    """The message with the planner's names replaced.

    >>> in_words_of_packing("lower prefix or align")
    'leave BOS out (add_bos=False, or quire pack --no-add-bos)'
    """
    for word, theirs in _WORDS:
        message = re.sub(rf"\b{word}\b", theirs, message)
    return message
