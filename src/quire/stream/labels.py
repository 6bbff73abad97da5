"""Labels on their way through a stream: a token that is not trained is marked in its own bits.

A marked token is ``~token``, which is negative. So packers and windows move labels without knowing
of them, and the tokens of a stream of texts, all of which are trained, are as they always were.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.labels import DEFAULT

Tokens = npt.NDArray[np.int32]


def marked(tokens: Tokens, labels: Tokens) -> Tokens:
    """The tokens, those without a label marked.

    >>> marked(np.array([5, 6], np.int32), np.array([-100, 6], np.int32)).tolist()
    [-6, 6]
    """
    return np.where(labels == DEFAULT.ignore_index, ~tokens, tokens)


def unmarked(tokens: Tokens) -> Tokens:
    """The ids.

    >>> unmarked(np.array([-6, 6], np.int32)).tolist()
    [5, 6]
    """
    ids: Tokens = tokens ^ (tokens >> 31)
    return ids
