"""Few groups of documents in which every document is once apart from every other one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quire.verify.report import Document


def halvings(documents: Sequence[Document]) -> Iterator[list[Document]]:
    """Groups such that for any two documents, one group holds the first and not the second.

    By the binary digits of their numbers: 2 · log2(n) groups instead of n single documents.

    >>> letters = [Document(row=row, number=1, start=0, stop=1) for row in range(5)]
    >>> [[document.row for document in group] for group in halvings(letters)]
    [[0, 2, 4], [1, 3], [0, 1, 4], [2, 3], [0, 1, 2, 3], [4]]
    """
    for digit in range((len(documents) - 1).bit_length()):
        for value in (0, 1):
            yield [
                document
                for number, document in enumerate(documents)
                if number >> digit & 1 == value
            ]  # fmt: skip
