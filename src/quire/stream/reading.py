"""How the records of a source are read, once their kind is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from quire.dataset.recognition import is_chat, recognized
from quire.errors import InvalidDocument
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.record_kinds import KINDS, TEXT, TOKENS_KIND, Record, example_of, kinds_of
from quire.formats.tables import require_text
from quire.options.names import setting
from quire.stream.options import StreamSource
from quire.text import TokenizerLike

MAX_RECORD_BYTES = 1 << 28
"""A longer record is a bad record, so that hostile files cannot fill the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What the records of one source hold, and which columns are read."""

    options: StreamSource
    """With the kind of the records."""
    is_chat: bool = False
    """Whether the tokenizer's chat template renders them."""
    is_tokens: bool = False
    """Whether they are tokens already."""

    @property
    def has_specials(self) -> bool:
        """Whether documents come with their special tokens, so that BOS and EOS are not added."""
        return self.is_chat or self.is_tokens

    @classmethod
    def of(
        cls,
        options: StreamSource,
        records: Callable[[], Iterable[Record]],
        tokenizer: TokenizerLike | None = None,
    ) -> Reading:
        """The reading of a source with these first records, which are read only if needed."""
        found = options
        if options.record_kind is None:
            found = replace(options, **recognized(options, records()))
        if not found.has_answers:
            return cls(options=found)
        return cls(options=found, is_chat=is_chat(found, records(), tokenizer))

    def fields(self) -> Fields:
        """What is read of each record."""
        options = self.options
        return Fields(
            kind=str(options.record_kind or TEXT),
            is_chat=self.is_chat,
            text_column=options.text_column,
            messages_column=options.messages_column,
            tools_column=options.tools_column,
            max_record_bytes=MAX_RECORD_BYTES,
        )

    def require_columns(self, file: InputFile, schema: pa.Schema) -> None:
        """Raise unless a table has the columns that are read."""
        fields, options, path = file.own_fields(self.fields()), self.options, file.path
        tools = (str(fields.tools_column),) if fields.needs_tools else ()
        for name in (*fields.columns, *tools):
            if name in schema.names:
                continue
            held = [kind for kind in kinds_of(example_of(schema)) if kind != TOKENS_KIND]
            if held and held[0] != fields.kind:
                raise InvalidDocument(
                    f"{path} has no column {name!r}; it holds {KINDS[held[0]].holds}: use "
                    f"{setting('record_kind', held[0])}"
                )
            remedy = f"; set {options.name('text_column')}" if fields.kind == TEXT else ""
            known = ", ".join(schema.names)
            raise InvalidDocument(f"{path} has no column {name!r} (it has {known}){remedy}")
        if fields.kind == TEXT:
            require_text(path, schema, fields.text_column)
