"""The planner's errors in the words of those who pack: its capacity is their max_length."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from quire.errors import InvalidOption, OversizedDocument

_WORDS = (
    ("prefix=1 and align=1 leave", "BOS leaves"),
    ("lower prefix or align", "leave BOS out (add_bos=False, or quire pack --no-add-bos)"),
    ("(the )?prefix", "BOS"),
    ("capacity", "max_length"),
    ("min_length", "min_len"),
)


@contextmanager
def words_of_packing() -> Iterator[None]:
    """Errors of the planner come out of the block with the names that options have in packing.

    >>> from quire import make_plan
    >>> with words_of_packing():
    ...     make_plan([3], capacity=0)
    Traceback (most recent call last):
    quire.errors.InvalidOption: max_length is 0 but must be an integer >= 1
    """
    try:
        yield
    except (InvalidOption, OversizedDocument) as error:
        error.args = (in_words_of_packing(str(error)),)
        raise


def in_words_of_packing(message: str) -> str:
    """The message with the planner's names replaced.

    >>> in_words_of_packing("lower min_length or raise capacity")
    'lower min_len or raise max_length'
    """
    for word, theirs in _WORDS:
        message = re.sub(rf"\b{word}\b", theirs, message)
    return message
