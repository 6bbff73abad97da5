"""Where a document that is longer than a window is cut, and the fewest tokens of its last part.

EOS that stands alone in a fragment is never learnt, as nothing before it predicts it. So where
documents end with EOS, it takes a token along. The sequential packer is the exception: it moves
nothing, and its windows are cut wherever they are full.
"""

from __future__ import annotations

from quire.errors import InvalidState
from quire.stream.state import read_count


def tail_of(*, add_eos: bool) -> int:
    """The fewest tokens of a document's last fragment."""
    return 2 if add_eos else 1


def cuts(length: int, size: int, tail: int) -> list[int]:
    """The places between which the fragments of a document stand.

    >>> cuts(20, 9, tail=2), cuts(19, 9, tail=2), cuts(19, 9, tail=1)
    ([0, 9, 18, 20], [0, 9, 17, 19], [0, 9, 18, 19])
    """
    places = [*range(0, length, size), length]
    if len(places) > 2:
        places[-2] = min(places[-2], length - tail)
    return places


def read_tail(what: str, plain: object) -> int:
    """The tail of a state: 1 in those of version 1, which continue as they were."""
    tail = read_count(f"{what}: tail", plain, most=2)
    if not tail:
        raise InvalidState(f"{what}: tail is 0 but a fragment has at least 1 token")
    return tail
