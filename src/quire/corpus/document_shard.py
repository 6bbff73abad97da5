"""A shard of documents, as far as planning needs it: lengths and labels, never tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.corpus.commits import Commit
from quire.corpus.contents import DOCUMENT_ID, LENGTH
from quire.documents import Documents
from quire.errors import CorruptFile
from quire.ledger import Ledger
from quire.storage import AnyPath, RemotePath

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentShard:
    """A shard of documents, as far as planning needs to know it."""

    path: AnyPath
    documents: int
    tokens: int
    ledger: Ledger

    @classmethod
    def of_manifest(cls, out: AnyPath, entry: Mapping[str, Any]) -> DocumentShard:
        """The shard that an entry of the manifest names."""
        return cls(
            path=out / entry["file"],
            documents=int(entry["documents"]),
            tokens=int(entry["tokens"]),
            ledger=Ledger.from_dict(entry["ledger"]),
        )

    @classmethod
    def of_commit(cls, out: AnyPath, commit: Commit) -> DocumentShard:
        """The shard that was committed."""
        return cls(
            path=out / commit.file,
            documents=commit.rows,
            tokens=commit.tokens,
            ledger=commit.ledger,
        )

    def lengths(self) -> IntArray:
        """Tokens of every document."""
        lengths: IntArray = self._read(LENGTH)[LENGTH].to_numpy()
        if len(lengths) != self.documents or int(lengths.sum()) != self.tokens:
            raise CorruptFile(
                f"{self.path} has {len(lengths)} documents with {int(lengths.sum())} tokens, but "
                f"the manifest says {self.documents} with {self.tokens}; pack it again"
            )
        return lengths

    def ids(self) -> IntArray:
        """The id of every document."""
        ids: IntArray = self._read(DOCUMENT_ID)[DOCUMENT_ID].to_numpy()
        return ids

    def labelled(self) -> Documents:
        """The documents with their labels alone."""
        column = self._read("labels")["labels"]
        lengths = pc.list_value_length(column).to_numpy().astype(np.int64)
        return Documents(
            columns={"labels": pc.list_flatten(column).combine_chunks()},
            offsets=np.cumsum(lengths) - lengths,
            lengths=lengths,
            numbers=np.arange(len(lengths)),
        )

    def _read(self, name: str) -> pa.Table:
        try:
            source = self.path.arrow_file() if isinstance(self.path, RemotePath) else self.path
            return pq.read_table(source, columns=[name], partitioning=None)
        except (OSError, pa.ArrowException) as error:
            if isinstance(self.path, RemotePath):
                self.path.raise_if_store_failed(error)
            raise CorruptFile(f"{self.path} cannot be read: {error}; pack it again") from error
