"""Streams of the `datasets` package: from the hub, from its loaders, or any object of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quire.errors import (
    InvalidOption,
    InvalidState,
    MissingDependency,
    QuireError,
    SourceError,
    missing_dependency,
)
from quire.stream.options import SourceOptions
from quire.stream.records import Record, text_of
from quire.stream.state import read_count, read_fields


def load_hub(options: SourceOptions) -> HubShards:
    """The dataset that the options name, as a stream."""
    if not options.hf_dataset:
        shown = "null" if options.hf_dataset is None else "''"
        raise InvalidOption(
            f"data.hf_dataset is {shown} but backend hf needs the name of a dataset; give it, "
            "or leave backend out and give files or local_text"
        )
    try:
        from datasets import load_dataset
    except ModuleNotFoundError:
        raise missing_dependency("datasets", "data.backend: hf", "hf") from None
    try:
        dataset = load_dataset(
            options.hf_dataset,
            options.hf_name,
            split=options.hf_split,
            data_files=list(options.hf_data_files) or None,
            streaming=True,
        )
    except Exception as error:
        raise _not_opened(options, error) from error
    return HubShards(dataset, options.text_key)


_MISTAKES = (ValueError, FileNotFoundError, NotImplementedError, RuntimeError)
"""What `datasets` raises where it has no such dataset, name, split or file, or reads no such."""


def _not_opened(options: SourceOptions, error: Exception) -> QuireError:
    """The error of `datasets` as one of quire's: an option to change, or a hub to reach again."""
    named = [f"hf_split {options.hf_split!r}"]
    if options.hf_name is not None:
        named.append(f"hf_name {options.hf_name!r}")
    if options.hf_data_files:
        named.append(f"hf_data_files {list(options.hf_data_files)!r}")
    what = (
        f"data.hf_dataset is {options.hf_dataset!r}, which cannot be opened with "
        f"{', '.join(named)}: {type(error).__name__}: {error}"
    ).rstrip(".")
    if isinstance(error, ImportError):
        return MissingDependency(f"{what}; install what it needs")
    if isinstance(error, _MISTAKES):
        return InvalidOption(
            f"{what}; set hf_dataset, hf_name, hf_split and hf_data_files to what there is, or "
            "open the dataset yourself and give it as open_stream(config, source=dataset)"
        )
    return SourceError(
        f"{what}; look at the name, the network, the login and the cache of datasets, then open "
        "it again; a folder or a file on disk needs no network"
    )


class HubShards:
    """The shards of an `IterableDataset`, each with the state that `datasets` keeps itself."""

    def __init__(self, dataset: Any, text_key: str) -> None:  # noqa: ANN401 - theirs
        _refuse_shuffled(dataset)
        self._dataset = dataset
        self._text_key = text_key
        self._count = max(1, int(getattr(dataset, "num_shards", 1) or 1))

    @property
    def names(self) -> list[str]:
        """Their numbers; `datasets` has no names for them."""
        return [str(number) for number in range(self._count)]

    def open(self, number: int, cursor: object | None) -> _HubShard:
        """One shard from its start, or from a state that `datasets` gave."""
        shard = self._dataset.shard(num_shards=self._count, index=number)
        return _HubShard(shard, number, cursor, self._text_key)


class _HubShard:
    def __init__(self, dataset: Any, number: int, cursor: object | None, text_key: str) -> None:  # noqa: ANN401
        self._dataset, self._number, self._text_key = dataset, number, text_key
        self._record = 0
        # `datasets` tells of the very start until the first example behind a restore is taken.
        self._untouched = None if cursor is None else self._restore(cursor)
        self._examples: Iterator[object] = iter(dataset)

    def next(self) -> Record:
        example = next(self._examples)
        self._untouched = None
        where = f"shard {self._number} of the dataset: record {self._record}"
        self._record += 1
        return text_of(example, self._text_key, where)

    def cursor(self) -> dict[str, Any]:
        if self._untouched is not None:
            return self._untouched
        return {"record": self._record, "datasets": self._dataset.state_dict()}

    def _restore(self, cursor: object) -> dict[str, Any]:
        fields = read_fields("the dataset's cursor", cursor, ("record", "datasets"))
        self._record = read_count("the dataset's cursor: record", fields["record"])
        try:
            self._dataset.load_state_dict(fields["datasets"])
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise InvalidState(
                f"datasets cannot read its own state: {error!r}; use a state as get_state() gave it"
            ) from error
        return fields


def _refuse_shuffled(dataset: object) -> None:
    """Raise if `datasets` shuffles with a buffer anywhere in this dataset: it is lost on resume."""
    stages = [getattr(dataset, "_ex_iterable", None)]
    while stages:
        stage = stages.pop()
        if any("BufferShuffled" in kind.__name__ for kind in type(stage).__mro__):
            raise InvalidOption(
                "the dataset is shuffled by datasets, whose buffer is lost on resume; leave out "
                ".shuffle() and set data.shuffle, which resumes exactly"
            )
        stages += _stages_below(stage)


def _stages_below(stage: object) -> list[object]:
    """The stages that one reads from, whatever attributes hold them: one, or a list of several.

    What a generator is given (``gen_kwargs``) is not among them: it is run anew on resume.
    """
    below = []
    for value in vars(stage).values() if hasattr(stage, "__dict__") else ():
        several = value if isinstance(value, list | tuple) else [value]
        below += [item for item in several if _is_stage(item)]
    return below


def _is_stage(value: object) -> bool:
    names = {kind.__name__ for kind in type(value).__mro__}
    return "_BaseExamplesIterable" in names or "IterableDataset" in names
