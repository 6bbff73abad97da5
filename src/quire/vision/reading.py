"""Samples by their position in a dataset, whether that has random access or is read in order."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from quire.errors import InvalidDocument, InvalidOption, SourceChanged, SourceError
from quire.vision.refusals import as_bad_sample, raise_if_bad_sample


class End(Enum):
    """What stands behind the last sample."""

    OF_SAMPLES = "end of samples"


class Samples(Protocol):
    """Gives the sample at a position."""

    def fetch(self, position: int) -> Any:  # noqa: ANN401 - whatever the dataset holds
        """The sample, or `End.OF_SAMPLES` where there is none.

        An `InvalidDocument` says what is wrong with a sample whose image cannot be read.
        """

    def forget(self, positions: Iterable[int]) -> None:
        """Samples at these positions are not asked for again."""


def has_positions(dataset: object) -> bool:
    """Whether samples can be asked for by number, in any order.

    >>> has_positions([1]), has_positions({1})
    (True, False)
    """
    torch = sys.modules.get("torch.utils.data")  # what is not imported has made no dataset
    if torch is not None and isinstance(dataset, torch.IterableDataset):
        return False  # torch's class has a `__getitem__` that only raises
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def require_readable(dataset: object) -> None:
    """Nothing, if samples can be read from the dataset, in every epoch anew."""
    if isinstance(dataset, Mapping):
        names = ", ".join(map(repr, list(dataset)[:5]))
        raise InvalidOption(
            f"dataset is a {type(dataset).__name__} of {names or 'nothing'}, not a list of "
            "samples; choose one of its datasets, or fuse them with FusionDataset"
        )
    if has_positions(dataset):
        return
    if not hasattr(dataset, "__iter__"):
        raise InvalidOption(
            f"dataset is {type(dataset).__name__} but must have __getitem__ and __len__, or "
            "__iter__"
        )
    if hasattr(dataset, "__next__"):
        raise InvalidOption(
            f"dataset is a {type(dataset).__name__}, which can be read only once; pass an object "
            "whose __iter__ starts anew"
        )


def open_samples(dataset: Any, wanted: Collection[int] = ()) -> Samples:  # noqa: ANN401
    """The samples of a dataset; of one that is read in order, ``wanted`` ones may be asked for
    later than others behind them."""
    return _ByNumber(dataset) if has_positions(dataset) else _InOrder(dataset, wanted)


def deals_to_workers(dataset: object) -> bool:
    """Whether each worker of a loader gets its own part from the dataset itself."""
    return any(
        kind.__name__ == "IterableDataset" and kind.__module__.partition(".")[0] == "datasets"
        for kind in type(dataset).__mro__
    )


class _ByNumber:
    def __init__(self, dataset: Any) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._length = len(dataset)

    def fetch(self, position: int) -> Any:  # noqa: ANN401
        if position >= self._length:
            return End.OF_SAMPLES
        try:
            return self._dataset[position]
        except StopIteration as error:  # which would pass for the end of the packs
            raise SourceError(
                f"__getitem__({position}) of the dataset raised StopIteration, of {self._length} "
                "samples; let it raise another error"
            ) from error
        except Exception as error:
            raise_if_bad_sample(error)
            error.add_note(f"while sample {position} was read")
            raise

    def forget(self, positions: Iterable[int]) -> None:
        """Nothing: none are held."""


class _InOrder:
    """Reads forward; the latest sample and wanted ones can be asked for again, until forgotten.

    After an error the dataset is opened anew and read up to the same sample: a generator that
    raised is over, and another iterator has passed over the sample that it raised for.
    """

    def __init__(self, dataset: Any, wanted: Collection[int]) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._source: Iterator[Any] | None = iter(dataset)
        self._last: Any = None
        """What the source gave last."""
        self._wanted = wanted
        self._held: dict[int, Any] = {}
        self._latest: tuple[int, Any] = (-1, None)

    def fetch(self, position: int) -> Any:  # noqa: ANN401
        while (latest := self._latest)[0] < position:
            if self._advance(latest[0] + 1) is End.OF_SAMPLES:
                return End.OF_SAMPLES
        sample = latest[1] if position == latest[0] else self._held[position]
        if isinstance(sample, _Unreadable):
            raise sample.problem
        return sample

    def forget(self, positions: Iterable[int]) -> None:
        for position in positions:
            self._held.pop(position, None)

    def _advance(self, position: int) -> Any:  # noqa: ANN401
        # The source is put back when all is done: whatever interrupts this, it is opened anew.
        source, self._source = self._source, None
        if source is None:
            source = self._opened_up_to(position)
        sample = self._read(source, position)
        if sample is not End.OF_SAMPLES:
            if position in self._wanted:
                self._held[position] = sample
            self._latest = position, sample
        self._source = source
        return sample

    def _opened_up_to(self, end: int) -> Iterator[Any]:
        source: Iterator[Any] = iter(self._dataset)
        self._last = None
        for position in range(end):
            if self._read(source, position) is End.OF_SAMPLES:
                raise SourceChanged(
                    f"the dataset ends at sample {position} when it is read anew after an error, "
                    f"but had {end} samples or more before; continue with the same dataset"
                )
        return source

    def _read(self, source: Iterator[Any], position: int) -> Any:  # noqa: ANN401
        try:
            sample = next(source, End.OF_SAMPLES)
        except Exception as error:
            if (problem := as_bad_sample(error)) is None:
                error.add_note(f"while sample {position} was read")
                raise
            problem.__cause__ = error
            sample = _Unreadable(problem)
        if sample is End.OF_SAMPLES and isinstance(self._last, _Unreadable):
            # A generator that raised is over: the samples behind would be lost without a word.
            raise SourceError(
                f"sample {position - 1} {self._last.problem}, and nothing comes behind it, as "
                "after an error in a generator; give a dataset with __getitem__, or an iterator "
                "that goes on after an error"
            ) from self._last.problem
        self._last = sample
        return sample


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands in the place of a sample that could not be read."""

    problem: InvalidDocument
