"""A corpus that is ready to be packed: its files, tokenizer, columns and complete options."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from quire.corpus.columns import resolve_columns, shows_tokens
from quire.corpus.encoding import Encoder, make_encoder
from quire.corpus.image_grids import GridRule
from quire.corpus.inputs import fields_to_read, find_inputs, of_each, read_span
from quire.corpus.options import MEBIBYTE, CorpusOptions
from quire.corpus.shards import document_schema, shard_schema
from quire.corpus.vision_encoding import IMAGE_PAD, VisionEncoder, image_token_of
from quire.corpus.vision_rows import MEDIA
from quire.dataset.recognition import first_records, is_chat, recognized
from quire.errors import InvalidOption
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.format import Batch, Span
from quire.formats.images import require_folder
from quire.formats.record_kinds import VISION
from quire.formats.vision_records import TYPES
from quire.plan import PlanOptions
from quire.storage import AnyPath, Named, as_path, is_uri
from quire.text import Tokenizer, TokenizerLike
from quire.text.chat import conversation_encoder
from quire.text.chat.date import today
from quire.text.chat.template import ChatTokenizer, as_chat_tokenizer, asks_for_date
from quire.text.engine import open_chat_engine, open_tokenizer
from quire.text.fast_tokenizer import FastTokenizer
from quire.text.tokenizer import adds_bos

_PARTITIONS = 16
"""By default inputs are cut into about this many partitions: enough for several workers."""
_LEAST, _MOST = 4 * MEBIBYTE, 256 * MEBIBYTE


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    """What is packed; together with quire's version it determines every byte of the output."""

    files: tuple[InputFile, ...]
    options: CorpusOptions
    """Complete: nothing is left to the tokenizer, the inputs or the date."""
    tokenizer: TokenizerLike | None = None
    """Loaded: a `Tokenizer`, or one with a chat template for conversations."""
    is_chat: bool = False
    """Whether the tokenizer's chat template renders the records."""
    engine: Tokenizer | None = None
    """Encodes what a chat template renders; None if none does."""
    image_root: Path | None = None
    """The folder that paths of images are relative to; None: that of the file with the record."""
    grid_rule: GridRule | None = None
    """How the model's image processor resizes, for conversations with images."""
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
        recorded: object = None,
        image_root: Path | None = None,
        format: str | None = None,  # noqa: A002
    ) -> Corpus:
        """The corpus of these inputs; ``format`` is that of a tokenized corpus.

        ``recorded`` are the options of the output that is being resumed, if there is one.
        """
        known = recorded if isinstance(recorded, Mapping) else {}
        files = find_inputs(inputs, out, options.pattern, format)
        first = first_records(files, fields_to_read(options, {}))
        seen = replace(options, **recognized(options, first))
        if not seen.has_images and tokenizer is None and shows_tokens(files, options):
            seen = replace(options, pretokenized=True)
        options = seen
        options.require_possible()
        chat = is_chat(options, first_records(files, fields_to_read(options, {})), tokenizer)
        size = sum(file.size for file in files)
        loaded = _load_tokenizer(tokenizer, options, size, chat)
        engine = None
        if chat:
            chat_tokenizer = cast(ChatTokenizer, loaded)
            engine = open_chat_engine(chat_tokenizer, options.tokenizer_engine, size)
        options = replace(options, **_completed(options, loaded, files, known, chat))
        rule = None
        if options.has_images:
            if chat:
                rule = GridRule.of_folder(Path(str(tokenizer)))
            options = _with_image_token(options, loaded, rule)
        columns = resolve_columns(files, options)
        if options.partition_size is None:
            fields = fields_to_read(options, columns, is_chat=chat)
            size = known.get("partition_size") or _partition_size(files, options, fields)
            options = replace(options, partition_size=size)
        return cls(
            files=files,
            options=options,
            tokenizer=loaded,
            is_chat=chat,
            engine=engine,
            image_root=image_root and require_folder(image_root),
            grid_rule=rule,
            columns=columns,
        )

    @property
    def fields(self) -> Fields:
        """What is read of each record."""
        return fields_to_read(self.options, self.columns, is_chat=self.is_chat)

    def schema(self) -> pa.Schema:
        """The columns of every shard."""
        if self.options.has_images:
            tokens = shard_schema({"labels": "int32", TYPES: "int8"}, self.options.keep_sources)
            return pa.schema([*tokens, *(pa.field(*pair) for pair in MEDIA.items())])
        columns = {"labels": "int32"} if self.options.has_answers else self.columns
        if self.options.index_only:
            return document_schema(columns)
        return shard_schema(columns, self.options.keep_sources)

    def plan_options(self) -> PlanOptions:
        """How documents become rows, with room for special tokens; raises if none ever fits."""
        self.schema()  # raises for columns that shards cannot have
        return self.encoder().documents().plan_options(self.options)

    def batches(self, spans: Iterable[Span]) -> Iterator[Batch]:
        """The records of some spans."""
        for span in spans:
            file, is_chat = self.files[span.file], self.is_chat
            yield from read_span(file, span, self.options, self.columns, is_chat=is_chat)

    def _vision_encoder(self) -> VisionEncoder:
        options, chat = self.options, None
        if self.is_chat:
            tokenizer = cast(ChatTokenizer, self.tokenizer)
            only, date = options.assistant_only, options.chat_date
            chat = conversation_encoder(tokenizer, only, date, self.engine)
        return VisionEncoder(
            options,
            folder=self.image_root,
            image_token_id=options.image_token_id,
            chat=chat,
            grid_rule=self.grid_rule,
        )

    def try_engine(self, spans: Iterable[Span]) -> None:
        """Encode the first records of some spans if the fast engine is in use.

        If it differs there it is not used, by any worker, and the manifest says so.
        """
        engine = self.engine or self.tokenizer
        if isinstance(engine, FastTokenizer) and engine.is_fast:
            batch = next((batch for batch in self.batches(spans) if batch.records), None)
            if batch is not None:
                self.encoder().add(batch, self.files[batch.file])

    def encoder(self) -> Encoder:
        """A new encoder for records of this corpus."""
        if self.options.has_images:
            return self._vision_encoder()
        return make_encoder(
            self.options, self.tokenizer, dict(self.columns), self.engine, is_chat=self.is_chat
        )


def default_partition_size(num_bytes: int) -> int:
    """The size of partitions, which depends only on the size of the inputs.

    >>> [default_partition_size(size << 20) >> 20 for size in (1, 160, 10_000)]
    [4, 10, 256]
    """
    return min(max(-(-num_bytes // _PARTITIONS), _LEAST), _MOST)


def _load_tokenizer(
    named: TokenizerLike | None, options: CorpusOptions, num_bytes: int, is_chat: bool
) -> TokenizerLike | None:
    """What encodes the corpus; None if records hold tokens and no tokenizer is named."""
    if named is None:
        if options.pretokenized or options.record_kind == VISION:
            return None
        raise InvalidOption(
            "text needs a tokenizer; pass 'byte' or the path of one (records that hold tokens "
            f"under {options.tokens_column!r} need none)"
        )
    if isinstance(named, str) and is_uri(named):
        raise InvalidOption(
            f"the tokenizer {as_path(named)} is in a store, but must be on the local disk\n"
            "fetch it, and pass its path"
        )
    if is_chat or options.record_kind == VISION:
        return as_chat_tokenizer(named)
    return open_tokenizer(named, options.tokenizer_engine, 0 if options.pretokenized else num_bytes)


def _completed(
    options: CorpusOptions,
    loaded: TokenizerLike | None,
    files: Sequence[InputFile],
    recorded: Mapping[str, Any],
    is_chat: bool,
) -> dict[str, Any]:
    """Values of the options that were left to the tokenizer, the inputs or the date.

    Values that an existing output ``recorded`` are kept. Otherwise BOS is added to text if the
    tokenizer adds it itself, and never to given or rendered tokens; the date is today's if a chat
    template asks for it, and stays unset if none does.
    """
    values: dict[str, Any] = {}
    if options.add_bos is None:
        is_text = loaded is not None and not options.pretokenized and not is_chat
        by_tokenizer = is_text and adds_bos(cast(Tokenizer, loaded))
        values["add_bos"] = recorded.get("add_bos", by_tokenizer)
    if is_chat and not options.chat_date and asks_for_date(loaded):
        values["chat_date"] = recorded.get("chat_date") or today()
    return values


def _partition_size(files: Sequence[InputFile], options: CorpusOptions, fields: Fields) -> int:
    """The default: by the bytes of text, which may be many times those of compressed files."""
    if options.embed_images:  # the files are much larger than the records that name them
        return MEBIBYTE
    size = sum(file.size for file in files)
    if size < _PARTITIONS * _MOST:  # the answer is open
        size = sum(
            of_each(files, lambda file: file.format.text_size(file, file.own_fields(fields)))
        )
    return default_partition_size(size)


def _with_image_token(
    options: CorpusOptions, loaded: TokenizerLike | None, rule: GridRule | None
) -> CorpusOptions:
    """The options with the id of the placeholder and the merge size that the model has."""
    token_id = image_token_of(loaded) if options.image_token_id is None else options.image_token_id
    if rule is not None and token_id is None:
        raise InvalidOption(
            f"the tokenizer has no {IMAGE_PAD}, which represents an image in messages; use the "
            "folder of a Qwen-VL model, or pack samples that a processor encoded"
        )
    merge = options.merge_size if rule is None else rule.merge_size
    return replace(options, image_token_id=token_id, merge_size=merge)


def chat_template_of(loaded: TokenizerLike | None) -> dict[str, object]:
    """What the manifest records of the chat template; nothing if there is none."""
    template = getattr(loaded, "chat_template", None)
    return {} if template is None else {"chat_template": template}
