"""Everything that is decided before a corpus is read: its files, and the options that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quire.corpus.columns import resolve_columns, shows_tokens
from quire.corpus.inputs import find_inputs
from quire.corpus.options import MEBIBYTE, CorpusOptions
from quire.corpus.tokenizer import load_tokenizer, settled
from quire.formats.files import InputFile
from quire.storage import AnyPath, Named
from quire.text import TokenizerLike

_SHARE = 16
"""Of the inputs, so large a part is a partition: enough of them for several workers."""
_LEAST, _MOST = 4 * MEBIBYTE, 256 * MEBIBYTE


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """The files of a corpus, the tokenizer, and options in which nothing is left open."""

    files: tuple[InputFile, ...]
    options: CorpusOptions
    tokenizer: TokenizerLike | None

    def columns(self) -> dict[str, str]:
        """The columns that are packed, as `resolve_columns` finds them."""
        return resolve_columns(self.files, self.options)


def prepare(
    named: Iterable[Named],
    tokenizer: TokenizerLike | None,
    options: CorpusOptions,
    *,
    out: AnyPath | None = None,
    recorded: Mapping[str, Any] | None = None,
) -> Prepared:
    """The corpus behind the inputs.

    ``recorded`` are the options of the output that is continued, if there is one.
    """
    files = find_inputs(named, out)
    if tokenizer is None and shows_tokens(files, options):
        options = replace(options, pretokenized=True)
    loaded = load_tokenizer(tokenizer, options)
    options = settled(options, loaded, recorded)
    if options.partition_size is None:
        size = (recorded or {}).get("partition_size") or default_partition_size(
            sum(file.size for file in files)
        )
        options = replace(options, partition_size=size)
    return Prepared(files=files, options=options, tokenizer=loaded)


def default_partition_size(num_bytes: int) -> int:
    """Bytes of a partition of inputs of so many bytes; it depends on nothing else.

    >>> [default_partition_size(size << 20) >> 20 for size in (1, 160, 10_000)]
    [4, 10, 256]
    """
    return min(max(-(-num_bytes // _SHARE), _LEAST), _MOST)
