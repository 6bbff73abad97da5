"""`Document` and `Bin` for custom packers, built on the planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.errors import InvalidOption, OversizedDocument
from quire.options import require_integer
from quire.plan import Fragment, PlanOptions, plan_documents


@dataclass(kw_only=False)
class Document:
    """A document to be packed: its tokens, how many, and which one it is."""

    input_ids: Sequence[int]
    length: int
    original_index: int

    def __post_init__(self) -> None:
        if self.length != len(self.input_ids):
            raise InvalidOption(
                f"document {self.original_index} has {len(self.input_ids)} input_ids but its "
                f"length is {self.length}; pass len(input_ids)"
            )


@dataclass
class Bin:
    """A row that is being filled.

    >>> row = Bin(max_length=8)
    >>> row.add_document(Document([5, 6, 7], 3, 0))
    >>> row.add_document(Document([8, 9], 2, 1), tokens_to_add=1)
    >>> row.get_ids(), row.get_document_starts(), row.remaining()
    ([5, 6, 7, 8], [0, 3], 4)
    """

    max_length: int
    documents: list[tuple[int, int]] = field(default_factory=list)
    """(original_index, tokens_added) of each document."""
    _ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        require_integer("max_length", self.max_length, 1)

    def remaining(self) -> int:
        """The number of tokens that still fit."""
        return self.max_length - len(self._ids)

    def can_fit(self, n: int) -> bool:
        """Whether this many more tokens fit."""
        return n <= self.remaining()

    def add_document(self, document: Document, tokens_to_add: int | None = None) -> None:
        """Append a document, or only its first tokens."""
        count = document.length if tokens_to_add is None else tokens_to_add
        if not 1 <= count <= document.length:
            raise InvalidOption(
                f"tokens_to_add is {count} but document {document.original_index} has "
                f"{document.length} tokens; add at least one and at most all"
            )
        if not self.can_fit(count):
            raise OversizedDocument(
                f"document {document.original_index} needs {count} places but the bin has "
                f"{self.remaining()} of {self.max_length} left; call can_fit first"
            )
        self._ids.extend(document.input_ids[:count])
        self.documents.append((document.original_index, count))

    def get_ids(self) -> list[int]:
        """The tokens of the row."""
        return list(self._ids)

    def get_document_starts(self) -> list[int]:
        """Where in the row each document starts."""
        starts, position = [], 0
        for _, count in self.documents:
            starts.append(position)
            position += count
        return starts


def split_document_optimally(
    document: Document, max_length: int, stride: int = 0, bos_token_id: int | None = None
) -> list[Document]:
    """The document in fragments that fit a row, each opened by BOS if there is one.

    >>> pieces = split_document_optimally(Document(list(range(12)), 12, 0), max_length=5)
    >>> [piece.length for piece in pieces]
    [5, 5, 2]
    """
    tokens = _without_bos(document, bos_token_id)
    options = PlanOptions(
        max_length=max_length,
        strategy="greedy",
        stride=stride,
        prefix=int(bos_token_id is not None),
        max_documents_per_row=1,
    )
    fragments = (row[0] for row in plan_documents([len(tokens)], options))
    pieces = [_piece(tokens, fragment, bos_token_id) for fragment in fragments]
    return [Document(ids, len(ids), document.original_index) for ids in pieces]


def pack_sequences_optimized(
    documents: Sequence[Document],
    max_length: int,
    min_len: int,
    stride: int,
    overflow: bool,
    strategy: str = "best_fit",
    bos_token_id: int | None = None,
    shuffle_output: bool = False,
    seed: int | None = 42,
) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of tokens and their document starts, by any strategy of the planner.

    >>> documents = [Document([7] * n, n, i) for i, n in enumerate((3, 2, 3))]
    >>> pack_sequences_optimized(documents, 10, min_len=1, stride=0, overflow=True)[1]
    [[0, 3, 6]]
    """
    tokens = [_without_bos(document, bos_token_id) for document in documents]
    options = PlanOptions(
        max_length=max_length,
        strategy=strategy,
        overlong="split" if overflow else "truncate",
        stride=stride,
        prefix=int(bos_token_id is not None),
        min_length=min_len,
        shuffle=shuffle_output,
        seed=seed,
    )
    sequences, starts = [], []
    for row in plan_documents([len(ids) for ids in tokens], options):
        filled = Bin(max_length)
        for fragment in row:
            ids = _piece(tokens[fragment.document], fragment, bos_token_id)
            original = documents[fragment.document].original_index
            filled.add_document(Document(ids, len(ids), original))
        sequences.append(filled.get_ids())
        starts.append(filled.get_document_starts())
    return sequences, starts


def _without_bos(document: Document, bos_token_id: int | None) -> list[int]:
    """The tokens after a BOS that the document already has, so no fragment starts with two."""
    ids = list(document.input_ids)
    return ids[1:] if bos_token_id is not None and ids[:1] == [bos_token_id] else ids


def _piece(tokens: list[int], fragment: Fragment, bos_token_id: int | None) -> list[int]:
    opening = [] if bos_token_id is None else [bos_token_id]
    return opening + tokens[fragment.start : fragment.stop]
