"""Datasets of the Hugging Face hub, or of `datasets` in memory, as the source of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from quire.errors import (
    InvalidOption,
    MissingDependency,
    QuireError,
    SourceError,
    missing_dependency,
)
from quire.formats.fields import Fields, without_nulls
from quire.formats.hub import HubShard, num_shards, require_unshuffled
from quire.formats.record_kinds import SEEN, TEXT, RecordProblem, example_of
from quire.storage.hub import require_hub
from quire.stream.options import StreamSource
from quire.stream.reading import Reading
from quire.stream.records import BadRecord, Record, checked_text
from quire.stream.state import read_count, read_fields
from quire.text import TokenizerLike


class HubShards:
    """The shards of an `IterableDataset`, each with the state that `datasets` keeps itself."""

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 - theirs
        options: StreamSource,
        tokenizer: TokenizerLike | None = None,
    ) -> None:
        require_unshuffled(dataset, options.name("shuffle"))
        self.reading = Reading.of(options, lambda: _first_records(dataset), tokenizer)
        self._dataset, self._fields = dataset, self.reading.fields()

    @property
    def names(self) -> list[str]:
        """Their numbers; `datasets` has no names for them."""
        return [str(number) for number in range(num_shards(self._dataset))]

    def open(self, number: int, cursor: object | None) -> _HubRecords:
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
        if self._fields.kind != TEXT:
            example = {name: without_nulls(value) for name, value in example.items()}
        try:
            value = self._fields.of(example)
        except RecordProblem as problem:
            return BadRecord(f"{where} {problem}", problem.fits or "")
        return checked_text(value, where) if isinstance(value, str) else value

    def cursor(self) -> dict[str, Any]:
        return {"record": self._record, "datasets": self._shard.state_dict()}


def _first_records(dataset: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - theirs
    """The first examples, or one made of the columns if the dataset knows them.

    If they cannot be read, there are none: reading them again reports it, after retries.
    """
    features = getattr(dataset, "features", None)
    if features:
        yield example_of(features.arrow_schema)
        return
    with suppress(Exception):
        shard = HubShard(dataset, 0, num_shards(dataset))
        for _ in range(SEEN):
            example = shard.next()
            if isinstance(example, Mapping):
                yield example


def load_hub(options: StreamSource, tokenizer: TokenizerLike | None = None) -> HubShards:
    """The dataset that the options name."""
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
    return HubShards(dataset, options, tokenizer)


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
