"""The sources of a stream: shards of records, each of which opens at a cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, cast

from quire.dataset.recognition import first_records, require_texts
from quire.errors import InvalidOption
from quire.formats.files import InputFile, find_files
from quire.formats.format import BadRecord as BadFileRecord
from quire.formats.format import Span
from quire.formats.record_kinds import TOKENS_KIND
from quire.options.names import setting
from quire.stream.hub import HubShards, load_hub
from quire.stream.options import StreamSource
from quire.stream.reading import Reading
from quire.stream.records import BadRecord, Record, checked_text
from quire.stream.state import read_count, read_fields
from quire.stream.tokens import CorpusShards, Stretch, reads_corpus
from quire.text import TokenizerLike


class Shard(Protocol):
    """One open shard; after an error it is not used again, but opened anew."""

    def next(self) -> Record:
        """The next record; StopIteration after the last."""

    def cursor(self) -> Any:  # noqa: ANN401 - any JSON
        """The position after the last record, for JSON."""


class Shards(Protocol):
    """A source; implement this to stream from your own."""

    @property
    def names(self) -> Sequence[str]:
        """One name per shard, the same in every run; other names mean another source."""

    def open(self, number: int, cursor: Any | None) -> Shard:  # noqa: ANN401
        """The shard from its start, or from a cursor that it gave."""


def open_source(
    options: StreamSource, given: object | None = None, tokenizer: TokenizerLike | None = None
) -> Shards:
    """The source that the options name; ``given`` is an `IterableDataset` or your own `Shards`.

    Whether the ``tokenizer`` has a chat template decides how instructions are read.
    """
    if given is not None or options.backend != "files":
        _require_no_tokens(options)
    if given is not None:
        return _as_shards(given, options, tokenizer)
    if options.backend == "files":
        if not options.files:
            raise InvalidOption(
                f"{options.name('files')} is empty but backend files needs at least one pattern"
            )
        if reads_corpus(options):
            return CorpusShards(options)
        _require_no_tokens(options)
        return FileShards(options, tokenizer)
    if options.backend == "local_text":
        if options.local_text is None:
            raise InvalidOption(
                f"{options.name('local_text')} is null but backend local_text needs a string"
            )
        return LocalText(options.local_text)
    return load_hub(options, tokenizer)


def _require_no_tokens(options: StreamSource) -> None:
    """Raise if the options ask for tokens, but files of text or another source are read."""
    for name in ("record_kind", "format"):
        value = getattr(options, name)
        if value == TOKENS_KIND or (value is not None and name == "format"):
            raise InvalidOption(
                f"{setting(name, value)} is not for these sources: streams read tokens from files "
                "of a tokenized corpus, and of Arrow and parquet if format names them; pack other "
                "records with pack_dataset or quire pack"
            )


def reading_of(shards: Shards, options: StreamSource) -> Reading:
    """How the records of a source are read: those of other sources than ours are texts."""
    if isinstance(shards, FileShards | HubShards | CorpusShards):
        return shards.reading
    if options.has_answers:
        raise InvalidOption(
            f"{setting('record_kind', options.record_kind)} is for files and datasets; a "
            f"{type(shards).__name__} gives texts: leave it out"
        )
    return Reading(options=options)


def _as_shards(given: object, options: StreamSource, tokenizer: TokenizerLike | None) -> Shards:
    if hasattr(given, "state_dict") and hasattr(given, "load_state_dict"):
        return HubShards(given, options, tokenizer)
    if hasattr(given, "names") and hasattr(given, "open"):
        return cast(Shards, given)
    raise InvalidOption(
        f"source is a {type(given).__name__} but must be a datasets.IterableDataset, or have "
        "names and open(number, cursor) as quire.stream.Shards says"
    )


class FileShards:
    """Every file is a shard, in the order in which they are named; those of a glob by name."""

    def __init__(self, options: StreamSource, tokenizer: TokenizerLike | None = None) -> None:
        named, pattern = options.name("files"), options.pattern
        self._files = files = find_files(options.files, option=named, pattern=pattern)
        unread = Reading(options=options).fields()
        self.reading = Reading.of(options, lambda: first_records(files, unread), tokenizer)
        require_texts(files, self.reading.options)

    @property
    def names(self) -> list[str]:
        """Names and sizes: a file that grew is another file."""
        return [
            f"{file.path.name} {file.size}"
            + ("" if file.text_column is None else f" {file.text_column}")
            for file in self._files
        ]

    def open(self, number: int, cursor: object | None) -> Shard:
        """The file from its start or from a cursor, if its size is unchanged."""
        return _FileShard(self._files[number], cursor, self.reading)


class _FileShard:
    def __init__(self, file: InputFile, cursor: object | None, reading: Reading) -> None:
        span = _span_from(file, cursor)
        self._file, self._record, self._position = file, span.first_record, span.start
        schema = file.format.schema(file)
        if schema is not None:
            reading.require_columns(file, schema)
        self._batches = file.read(span, reading.fields())
        # The first batch is read here, so that a cursor that does not fit the file is refused.
        first = next(self._batches, None)
        self._ready: Iterator[tuple[int, int, Any]] = iter(())
        if first is not None:
            self._ready = first.in_order()

    def next(self) -> Record:
        return self.read(1)[0]

    def read(self, most: int) -> list[Record]:
        """The next records, at least one, from what is decoded already if there is any."""
        while not (part := list(islice(self._ready, most))):
            self._ready = next(self._batches).in_order()
        number, self._position, _ = part[-1]
        self._record = number + 1
        return [self._record_of(number, value) for number, _, value in part]

    def _record_of(self, number: int, value: Any) -> Record:  # noqa: ANN401 - a JSON value
        if not isinstance(value, BadFileRecord):
            return cast(Record, value)
        offset = "" if value.offset is None else f" (byte {value.offset})"
        where = f"{self._file.path.name}: {self._file.format.unit} {number}{offset}"
        return BadRecord(f"{where} {value.reason}", value.fits)

    def cursor(self) -> dict[str, int] | int:
        if self._file.format.has_byte_positions:
            return {"line": self._record, "offset": self._position}
        return self._position


def read_records(shard: Shard, most: int) -> list[Record]:
    """The next records of a shard, at least one; StopIteration after the last."""
    return shard.read(most) if isinstance(shard, _FileShard | Stretch) else [shard.next()]


def _span_from(file: InputFile, cursor: object | None) -> Span:
    """The rest of a file from a cursor on."""
    if cursor is None:
        return Span(file=file.number)
    what = f"the cursor in {file.path.name}"
    if not file.format.has_byte_positions:
        record = read_count(what, cursor)
        return Span(file=file.number, start=record, first_record=record)
    fields = read_fields(what, cursor, ("line", "offset"))
    line = read_count(f"{what}: line", fields["line"])
    offset = read_count(f"{what}: offset", fields["offset"])
    return Span(file=file.number, start=offset, first_record=line)


@dataclass(frozen=True, slots=True)
class LocalText:
    """One shard with one document, to try things out."""

    text: str
    names: tuple[str, ...] = ("local_text",)

    def open(self, number: int, cursor: object | None) -> Shard:
        """The shard, before or after its document."""
        del number
        read = 0 if cursor is None else read_count("the cursor of local_text", cursor, most=1)
        return _OneText(self.text, read)


class _OneText:
    def __init__(self, text: str, read: int) -> None:
        self._text, self._read = text, read

    def next(self) -> Record:
        if self._read:
            raise StopIteration
        self._read = 1
        return checked_text(self._text, "local_text")

    def cursor(self) -> int:
        return self._read
