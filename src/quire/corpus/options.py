"""The options that decide the bytes of a packed corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from quire.errors import InvalidOption
from quire.options import EncodeOptions, PackOptions, Seed, Size, SourceOptions
from quire.options.names import option
from quire.plan import require_plannable

MEBIBYTE = 1 << 20
ROW_OPTIONS = tuple(field.name for field in fields(PackOptions))
"""The options that shape rows; the others decide what the documents are."""


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(SourceOptions, EncodeOptions, PackOptions):
    """How rows become shards."""

    seed: Seed = 0
    """Seeds the order of rows."""
    keep_sources: bool = True
    """Write ``document_ids`` and ``document_offsets``: where each fragment comes from."""
    index_only: bool = False
    """Write tokenized documents and a plan of their rows instead of rows; quire replan then makes
    other rows in seconds."""
    partition_size: Size | None = None
    """Bytes of text that are packed together. None: a sixteenth of the inputs, from 4M to 256M."""
    max_record_bytes: Size = 256 * MEBIBYTE
    """A longer record is a bad record."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_plannable(self)
        self._require_one_kind()
        if self.index_only and not self.keep_sources:
            raise InvalidOption(
                "an index-only output always records where fragments come from; leave "
                f"{option('keep_sources')} on"
            )

    def _require_one_kind(self) -> None:
        if not self.pretokenized:
            self.require_unset(f"tokens ({option('pretokenized')})", "columns")
        if self.pretokenized or self.has_answers:
            self.require_unset("text", "truncate_at", "truncate_to", "drop_longer_than")
        if self.index_only and self.record_kind == "preference":
            raise InvalidOption(
                f"preference pairs share a row, which plans of documents do not know; leave "
                f"{option('index_only')} out"
            )

    @property
    def batch_bytes(self) -> int:
        """Text that is encoded at once: enough for a tokenizer's threads, a part of a partition."""
        return max(1, min(16 * MEBIBYTE, self.partition_bytes // 16))

    @property
    def partition_bytes(self) -> int:
        """The size of a partition, once it is known."""
        if self.partition_size is None:
            raise InvalidOption("partition_size is not known before the inputs are prepared")
        return self.partition_size

    def row_options(self) -> dict[str, object]:
        """The options that shape rows, as the manifest records them."""
        recorded = self.to_dict()
        return {name: recorded[name] for name in ROW_OPTIONS if name in recorded}

    @classmethod
    def with_defaults(cls, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Recorded options, with the default of each one that is missing.

        An option is missing if it had no effect, or did not exist when the output was begun.

        >>> CorpusOptions.with_defaults({"max_length": 8})["align"]
        1
        """
        known = {field.name: field.default for field in fields(cls)}
        defaults = {name: value for name, value in known.items() if value is not MISSING}
        return {**defaults, **recorded}

    def to_dict(self) -> dict[str, object]:
        """Plain values, as the manifest records them: options without effect are left out."""
        plain = asdict(self)
        del plain["tokenizer_engine"]  # all give the same ids
        if not self.has_answers:
            del plain["tools_column"], plain["chat_date"]
        if self.record_kind in (None, "text", "messages", "tokens"):
            del plain["record_kind"]  # the other options say it
        if not self.pretokenized:
            del plain["tokens_column"]
        # 0.1.0 did not have these two; without them, its headers and today's stay equal.
        if self.align == 1:
            del plain["align"]
        if self.truncate_to is None:
            del plain["truncate_to"]
        return {**plain, "columns": None if self.columns is None else list(self.columns)}
