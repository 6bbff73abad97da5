"""Read samples by their position, from datasets with random access or with only an iterator."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from quire.errors import InvalidDocument, InvalidOption, SourceChanged, SourceError
from quire.printable import printable


class End(Enum):
    """What follows the last sample."""

    OF_SAMPLES = "end of samples"


class Samples(Protocol):
    """Samples by position."""

    def fetch(self, position: int) -> Any:  # noqa: ANN401 - whatever the dataset holds
        """The sample, or `End.OF_SAMPLES` past the last one.

        Raises `InvalidDocument` if the sample's content, such as an image, cannot be read.
        """

    def forget(self, positions: Iterable[int]) -> None:
        """Release the samples at these positions; they are not fetched again."""


def has_random_access(dataset: object) -> bool:
    """Whether samples can be read by number, in any order.

    >>> has_random_access([1]), has_random_access({1})
    (True, False)
    """
    torch = sys.modules.get("torch.utils.data")  # if it is not imported, this is not its dataset
    if torch is not None and isinstance(dataset, torch.IterableDataset):
        return False  # torch's class has a `__getitem__` that only raises
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def require_readable(dataset: object) -> None:
    """Raise unless samples can be read from the dataset, again in every epoch."""
    kind = type(dataset).__name__
    if isinstance(dataset, Mapping):
        names = ", ".join(map(repr, list(dataset)[:5]))
        raise InvalidOption(
            f"dataset is a {kind} of {names or 'nothing'}, not a list of samples; choose one of "
            "its datasets, or fuse them with FusionDataset"
        )
    if has_random_access(dataset):
        return
    if not hasattr(dataset, "__iter__"):
        raise InvalidOption(f"dataset is {kind} but must have __getitem__ and __len__, or __iter__")
    if hasattr(dataset, "__next__"):
        raise InvalidOption(
            f"dataset is a {kind}, which can be read only once; pass an object whose __iter__ "
            "starts over"
        )


def shards_itself(dataset: object) -> bool:
    """Whether the dataset itself gives each worker of a loader its own part."""
    return any(
        kind.__name__ == "IterableDataset" and kind.__module__.partition(".")[0] == "datasets"
        for kind in type(dataset).__mro__
    )


def open_samples(dataset: Any, wanted: Collection[int] = ()) -> Samples:  # noqa: ANN401
    """The samples of a dataset.

    If it has only an iterator, ``wanted`` samples are kept, so they can be fetched after later
    ones.
    """
    return _ByNumber(dataset) if has_random_access(dataset) else _InOrder(dataset, wanted)


class _ByNumber:
    def __init__(self, dataset: Any) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._length = len(dataset)

    def fetch(self, position: int) -> Any:  # noqa: ANN401
        if position >= self._length:
            return End.OF_SAMPLES
        try:
            return self._dataset[position]
        except StopIteration as error:  # it would look like the end of the packs
            raise SourceError(
                f"__getitem__({position}) of the dataset raised StopIteration, but it has "
                f"{self._length} samples; raise a different error"
            ) from error
        except Exception as error:
            raise_if_bad_sample(error)
            error.add_note(f"while reading sample {position}")
            raise

    def forget(self, positions: Iterable[int]) -> None:
        """Do nothing: no samples are held."""


class _InOrder:
    """Reads forward; the latest sample and wanted ones can be fetched again until forgotten.

    After an error the dataset is opened again and read up to the same sample: a generator that
    raised has ended, and another iterator has skipped the sample it raised for.
    """

    def __init__(self, dataset: Any, wanted: Collection[int]) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._iterator: Iterator[Any] | None = iter(dataset)
        self._last: Any = None
        """What the iterator returned last."""
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
        # The iterator is put back at the end: after any interrupt the dataset is opened again.
        iterator, self._iterator = self._iterator, None
        if iterator is None:
            iterator = self._opened_up_to(position)
        sample = self._read(iterator, position)
        if sample is not End.OF_SAMPLES:
            if position in self._wanted:
                self._held[position] = sample
            self._latest = position, sample
        self._iterator = iterator
        return sample

    def _opened_up_to(self, end: int) -> Iterator[Any]:
        iterator: Iterator[Any] = iter(self._dataset)
        self._last = None
        for position in range(end):
            if self._read(iterator, position) is End.OF_SAMPLES:
                raise SourceChanged(
                    f"the dataset ends at sample {position} when it is read again after an error, "
                    f"but had {end} samples or more before; continue with the same dataset"
                )
        return iterator

    def _read(self, iterator: Iterator[Any], position: int) -> Any:  # noqa: ANN401
        try:
            sample = next(iterator, End.OF_SAMPLES)
        except Exception as error:
            if (problem := as_bad_sample(error)) is None:
                error.add_note(f"while reading sample {position}")
                raise
            problem.__cause__ = error
            sample = _Unreadable(problem)
        if sample is End.OF_SAMPLES and isinstance(self._last, _Unreadable):
            # A generator that raised has ended: all following samples would be lost silently.
            raise SourceError(
                f"sample {position - 1} {self._last.problem}, and no sample follows it, as after "
                "an error in a generator; use a dataset with __getitem__, or an iterator that "
                "continues after an error"
            ) from self._last.problem
        self._last = sample
        return sample


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Takes the place of a sample that could not be read."""

    problem: InvalidDocument


def as_bad_sample(error: Exception) -> InvalidDocument | None:
    """What is wrong with the sample, if the error is about its content; otherwise None.

    Content errors are those of Pillow (an image over its pixel limit, truncated, or of an unknown
    format) and the dataset's own `InvalidDocument`. A missing file or a failing disk or network
    says nothing about the sample, so it is not a reason to skip it. No decoder is imported: the
    dataset decodes, and the error shows where it was raised.

    >>> as_bad_sample(InvalidDocument("its image is black"))
    InvalidDocument('cannot be read: its image is black')
    >>> as_bad_sample(FileNotFoundError(2, "No such file")) is None
    True
    """
    message = printable(str(error), keep="").rstrip(".")  # a decoder may quote bytes of the file
    if isinstance(error, InvalidDocument):
        return InvalidDocument(f"cannot be read: {message}")
    if _is_from_pillow(error):
        kind = type(error).__name__
        return InvalidDocument(f"has an image that cannot be read: {kind}: {message}")
    return None


def raise_if_bad_sample(error: Exception) -> None:
    """Raise an `InvalidDocument` if the error is about the content of a sample."""
    if (problem := as_bad_sample(error)) is not None:
        raise problem from error


def _is_from_pillow(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
        return False  # an error of the system, which may not recur
    modules = (type(error).__module__, _raising_module(error))
    if any(module.partition(".")[0] == "PIL" for module in modules):
        return True
    return error.__cause__ is not None and _is_from_pillow(error.__cause__)


def _raising_module(error: BaseException) -> str:
    """The module that raised; a store's file object that Pillow reads from raises in its own."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return "" if frame is None else str(frame.tb_frame.f_globals.get("__name__", ""))
