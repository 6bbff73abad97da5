"""What a tokenizer returns: the tokens of many texts, end to end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """Tokens of all texts in one array, and the number of tokens of each text."""

    tokens: npt.NDArray[np.int32]
    lengths: npt.NDArray[np.int64]
    from_vocabulary: bool = False
    """Whether the vocabulary's own library produced the ids, so they need no check."""

    def of(self, number: int) -> npt.NDArray[np.int32]:
        """The tokens of one text."""
        stop = int(self.lengths[: number + 1].sum())
        return self.tokens[stop - int(self.lengths[number]) : stop]

    @classmethod
    def joined(cls, parts: Sequence[Encoded]) -> Encoded:
        """The texts of all parts, in order."""
        none = cls.of_lists([])
        return cls(
            tokens=np.concatenate([part.tokens for part in (*parts, none)]),
            lengths=np.concatenate([part.lengths for part in (*parts, none)]),
            # Only if every part is, so that a large vocabulary need not be read for its size.
            from_vocabulary=all(part.from_vocabulary for part in parts),
        )

    @classmethod
    def of_lists(
        cls,
        lists: Iterable[Sequence[int] | npt.NDArray[np.int32]],
        *,
        from_vocabulary: bool = False,
    ) -> Encoded:
        """From one list of token ids per text.

        >>> Encoded.of_lists([[5, 6], [], [7]]).lengths.tolist()
        [2, 0, 1]
        """
        arrays = [np.array(ids, dtype=np.int32) for ids in lists]
        none = np.zeros(0, dtype=np.int32)
        return cls(
            tokens=np.concatenate([*arrays, none]),
            lengths=np.array([len(array) for array in arrays], dtype=np.int64),
            from_vocabulary=from_vocabulary,
        )


def token_ids(document: int, ids: object) -> npt.NDArray[np.int32]:
    """The ids that a third-party tokenizer returned for a document, never rounded or wrapped.

    >>> token_ids(0, [5, 2**40])
    Traceback (most recent call last):
    quire.errors.InvalidDocument: document 0 has token id 1099511627776 but ids have 31 bits
    """
    try:
        array = np.asarray(ids)
    except ValueError:  # lists of different lengths inside a list
        array = np.empty((0, 0))
    if array.shape == (0,):
        return np.zeros(0, dtype=np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidDocument(
            f"document {document}: the tokenizer returned {ids!r:.80} but a flat list of integer "
            "ids is needed"
        )
    farthest = max((int(array.max()), int(array.min())), key=abs)
    if abs(farthest) > np.iinfo(np.int32).max:
        raise InvalidDocument(f"document {document} has token id {farthest} but ids have 31 bits")
    return array.astype(np.int32)
