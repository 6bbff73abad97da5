"""What a tokenizer gives back: the tokens of many texts, end to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """Tokens of all texts one after the other, and how many each text has."""

    tokens: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]

    @classmethod
    def of_lists(cls, lists: Iterable[Sequence[int]]) -> Encoded:
        """From one list of token ids a text.

        >>> Encoded.of_lists([[5, 6], [], [7]]).lengths.tolist()
        [2, 0, 1]
        """
        arrays = [np.array(ids, dtype=np.int32) for ids in lists]
        none = np.zeros(0, dtype=np.int32)
        return cls(
            tokens=np.concatenate([*arrays, none]),
            lengths=np.array([len(array) for array in arrays], dtype=np.int64),
        )
