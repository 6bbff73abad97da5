"""The sources of a stream: shards of records, each of which opens at a cursor."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from quire.errors import (
    InvalidDocument,
    InvalidOption,
    MissingDependency,
    QuireError,
    SourceError,
    missing_dependency,
)
from quire.formats.fields import Fields
from quire.formats.files import InputFile, find_files
from quire.formats.format import Span
from quire.formats.hub import HubShard, num_shards, require_unshuffled
from quire.formats.record_kinds import RecordProblem
from quire.formats.tables import require_text
from quire.stream.options import StreamSource
from quire.stream.state import read_count, read_fields
from quire.text.hub import require_hub

MAX_RECORD_BYTES = 1 << 28
"""A longer record is a bad record, so that hostile files cannot fill the memory."""


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record without a text; ``problem`` says where it is and why, never what it holds."""

    problem: str


Record: TypeAlias = str | BadRecord


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


def open_source(options: StreamSource, given: object | None = None) -> Shards:
    """The source that the options name; ``given`` is an `IterableDataset` or your own `Shards`."""
    if given is not None:
        return _as_shards(given, options)
    if options.backend == "files":
        if not options.files:
            raise InvalidOption(
                f"{options.name('files')} is empty but backend files needs at least one pattern"
            )
        return FileShards(options)
    if options.backend == "local_text":
        if options.local_text is None:
            raise InvalidOption(
                f"{options.name('local_text')} is null but backend local_text needs a string"
            )
        return LocalText(options.local_text)
    return _load_hub(options)


def _as_shards(given: object, options: StreamSource) -> Shards:
    if hasattr(given, "state_dict") and hasattr(given, "load_state_dict"):
        return HubShards(given, options)
    if hasattr(given, "names") and hasattr(given, "open"):
        return cast(Shards, given)
    raise InvalidOption(
        f"source is a {type(given).__name__} but must be a datasets.IterableDataset, or have "
        "names and open(number, cursor) as quire.stream.Shards says"
    )


class FileShards:
    """Every file is a shard, in the order in which they are named; those of a glob by name."""

    def __init__(self, options: StreamSource) -> None:
        self._files = find_files(options.files, option=options.name("files"))
        self._fields = Fields(text_column=options.text_column, max_record_bytes=MAX_RECORD_BYTES)
        self._option = options.name("text_column")

    @property
    def names(self) -> list[str]:
        """Names and sizes: a file that grew is another file."""
        return [f"{file.path.name} {file.size}" for file in self._files]

    def open(self, number: int, cursor: object | None) -> Shard:
        """The file from its start or from a cursor, if its size is unchanged."""
        return _FileShard(self._files[number], cursor, self._fields, self._option)


class _FileShard:
    def __init__(self, file: InputFile, cursor: object | None, fields: Fields, option: str) -> None:
        span, name = _span_from(file, cursor), fields.text_column
        self._file, self._record, self._position = file, span.first_record, span.start
        schema = file.format.schema(file)
        if schema is not None:
            if name not in schema.names:
                raise InvalidDocument(
                    f"{file.path} has no column {name!r} (it has {', '.join(schema.names)}); set "
                    f"{option}"
                )
            require_text(file.path, schema, name)
        self._batches = file.read(span, fields)
        # The first batch is read here, so that a cursor that does not fit the file is refused.
        first = next(self._batches, None)
        self._ready = deque(() if first is None else first.in_order())

    def next(self) -> Record:
        while not self._ready:
            self._ready.extend(next(self._batches).in_order())
        number, self._position, value = self._ready.popleft()
        self._record = number + 1
        if isinstance(value, str):
            return value
        offset = "" if value.offset is None else f" (byte {value.offset})"
        where = f"{self._file.path.name}: {self._file.format.unit} {number}{offset}"
        return BadRecord(f"{where} {value.reason}")

    def cursor(self) -> dict[str, int] | int:
        if self._file.format.has_byte_positions:
            return {"line": self._record, "offset": self._position}
        return self._position


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
        return _checked_text(self._text, "local_text")

    def cursor(self) -> int:
        return self._read


class HubShards:
    """The shards of an `IterableDataset`, each with the state that `datasets` keeps itself."""

    def __init__(self, dataset: Any, options: StreamSource) -> None:  # noqa: ANN401 - theirs
        require_unshuffled(dataset, options.name("shuffle"))
        self._dataset, self._fields = dataset, Fields(text_column=options.text_column)

    @property
    def names(self) -> list[str]:
        """Their numbers; `datasets` has no names for them."""
        return [str(number) for number in range(num_shards(self._dataset))]

    def open(self, number: int, cursor: object | None) -> Shard:
        """One shard from its start, or from a state that `datasets` gave."""
        record, state = 0, None
        if cursor is not None:
            fields = read_fields("the dataset's cursor", cursor, ("record", "datasets"))
            record = read_count("the dataset's cursor: record", fields["record"])
            state = fields["datasets"]
        shard = HubShard(self._dataset, number, num_shards(self._dataset), state)
        return _HubRecords(shard, number, record, self._fields)


class _HubRecords:
    def __init__(self, shard: HubShard, number: int, record: int, fields: Fields) -> None:
        self._shard, self._number, self._record, self._fields = shard, number, record, fields

    def next(self) -> Record:
        example = self._shard.next()
        where = f"shard {self._number} of the dataset: record {self._record}"
        self._record += 1
        if not isinstance(example, Mapping):
            return BadRecord(f"{where} is {type(example).__name__}, not an object")
        try:
            return _checked_text(self._fields.of(example), where)
        except RecordProblem as problem:
            return BadRecord(f"{where} {problem}")

    def cursor(self) -> dict[str, Any]:
        return {"record": self._record, "datasets": self._shard.state_dict()}


def _checked_text(text: str, where: str) -> Record:
    """The text, unless it holds half a surrogate pair, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return BadRecord(f"{where} has half a surrogate pair at character {error.start}")
    return text


def _load_hub(options: StreamSource) -> HubShards:
    if not options.hf_dataset:
        shown = "null" if options.hf_dataset is None else "''"
        raise InvalidOption(
            f"{options.name('hf_dataset')} is {shown} but backend hf needs the name of a "
            "dataset; set it, or leave backend out and set files or local_text"
        )
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise missing_dependency("datasets", "backend hf", "hf") from None
    require_hub(options.hf_dataset, options.name("hf_dataset"))
    try:
        dataset = load_dataset(
            options.hf_dataset,
            options.hf_name,
            split=options.hf_split,
            data_files=list(options.hf_data_files) or None,
            streaming=True,
        )
    except Exception as error:
        raise _hub_error(options, error) from error
    return HubShards(dataset, options)


_USER_ERRORS = (ValueError, FileNotFoundError, NotImplementedError, RuntimeError)
"""What `datasets` raises for an unknown dataset, name, split or file, or an unsupported one."""


def _hub_error(options: StreamSource, error: Exception) -> QuireError:
    """An error of `datasets` as one of quire's: an option to change, or a hub to try again."""
    named = [f"hf_split {options.hf_split!r}"]
    if options.hf_name is not None:
        named.append(f"hf_name {options.hf_name!r}")
    if options.hf_data_files:
        named.append(f"hf_data_files {list(options.hf_data_files)!r}")
    what = (
        f"{options.name('hf_dataset')} is {options.hf_dataset!r}, which cannot be opened with "
        f"{', '.join(named)}: {type(error).__name__}: {error}"
    ).rstrip(".")
    if isinstance(error, ImportError):
        return MissingDependency(f"{what}; install what it needs")
    if isinstance(error, _USER_ERRORS):
        return InvalidOption(
            f"{what}; set hf_dataset, hf_name, hf_split and hf_data_files to what exists, or "
            "open the dataset yourself and pass it as open_stream(config, source=dataset)"
        )
    return SourceError(
        f"{what}; check the name, the network, the login and the cache of datasets, then open it "
        "again; a folder or a file on disk needs no network"
    )
