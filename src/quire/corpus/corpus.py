"""A corpus that is ready to be packed: its files, tokenizer, columns and complete options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quire.corpus.columns import resolve_columns, shows_tokens
from quire.corpus.encoding import Encoder, make_encoder
from quire.corpus.inputs import fields_to_read, find_inputs, read_span
from quire.corpus.options import MEBIBYTE, CorpusOptions
from quire.corpus.tokenizer import load_tokenizer, settled
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.format import Batch, Span
from quire.storage import AnyPath, Named, RemotePath
from quire.text import TokenizerLike

_PARTITIONS = 16
"""The inputs are cut into about so many partitions: enough for several workers."""
_LEAST, _MOST = 4 * MEBIBYTE, 256 * MEBIBYTE


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """What is packed; together with quire's version it determines every byte of the output."""

    files: tuple[InputFile, ...]
    options: CorpusOptions
    """Complete: nothing is left to the tokenizer, the inputs or the date."""
    tokenizer: TokenizerLike | None = None
    columns: Mapping[str, str]
    """Per-token columns of the input and their types, if it is tokenized."""

    @classmethod
    def open(
        cls,
        inputs: Iterable[Named],
        tokenizer: TokenizerLike | None,
        options: CorpusOptions,
        *,
        out: AnyPath | None = None,
        recorded: Mapping[str, Any] | None = None,
    ) -> Corpus:
        """The corpus of these inputs.

        ``recorded`` are the options of the output that is being resumed, if there is one.
        """
        files = find_inputs(inputs, out)
        if tokenizer is None and shows_tokens(files, options):
            options = replace(options, pretokenized=True)
        loaded = load_tokenizer(tokenizer, options)
        options = settled(options, loaded, recorded)
        if options.partition_size is None:
            size = (recorded or {}).get("partition_size") or default_partition_size(
                sum(file.size for file in files)
            )
            options = replace(options, partition_size=size)
        columns = resolve_columns(files, options)
        return cls(files=files, options=options, tokenizer=loaded, columns=columns)

    @property
    def fields(self) -> Fields:
        """What is read of each record."""
        return fields_to_read(self.options, self.columns)

    @property
    def shard_columns(self) -> Mapping[str, str]:
        """Per-token columns of the shards and their types."""
        return {"labels": "int32"} if self.options.messages_column else self.columns

    @property
    def is_in_store(self) -> bool:
        """Whether any file is in a store."""
        return any(isinstance(file.path, RemotePath) for file in self.files)

    def batches(self, spans: Iterable[Span]) -> Iterator[Batch]:
        """The records of some spans."""
        for span in spans:
            yield from read_span(self.files[span.file], span, self.options, self.columns)

    def encoder(self) -> Encoder:
        """A new encoder for records of this corpus."""
        return make_encoder(self.options, self.tokenizer, dict(self.columns))


def default_partition_size(num_bytes: int) -> int:
    """The size of partitions, which depends only on the size of the inputs.

    >>> [default_partition_size(size << 20) >> 20 for size in (1, 160, 10_000)]
    [4, 10, 256]
    """
    return min(max(-(-num_bytes // _PARTITIONS), _LEAST), _MOST)
