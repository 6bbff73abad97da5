"""`FusionDataset`: mix several datasets in given ratios, reshuffled every epoch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, unknown_name
from quire.options import Number, require_integer
from quire.plan.build import permutation
from quire.plan.lengths import IntArray
from quire.vision.lengths import KnownLengths, known_sizes
from quire.vision.samples import SampleReader
from quire.vision.source import has_random_access

Ints = npt.NDArray[np.int64]
_MOST_SAMPLES = 2**32
"""More samples in an epoch must be a mistake; an index is held for each of them."""


class FusionDataset:
    """Samples of several datasets; an epoch has ``round(len · ratio)`` samples of each.

    No sample repeats before its whole dataset was used; what a ratio above 1 needs beyond that is
    drawn at random. Every epoch has different samples in a different order. Samples are not
    changed: `source_of` returns the dataset that one comes from.

    >>> fused = FusionDataset({"a": list("abcd"), "b": list("xy")}, {"a": 0.5, "b": 2.0})
    >>> fused.quotas, len(fused)
    ({'a': 2, 'b': 4}, 6)
    >>> sorted(fused[n] for n in range(6) if fused.source_of(n) == "b")[1:3]
    ['x', 'y']
    """

    def __init__(
        self,
        datasets: Mapping[str, Any],
        ratios: Mapping[str, float] | None = None,
        seed: int = 0,
        *,
        lengths: Mapping[str, KnownLengths] | None = None,
    ) -> None:
        self._datasets = _checked_datasets(datasets)
        self.ratios = _checked_ratios(self._datasets, ratios)
        self.seed = require_integer("seed", seed, 0)
        self._lengths = dict(lengths or {})
        for name in self._lengths:
            if name not in self._datasets:
                raise unknown_name("dataset in lengths", name, self._datasets)
        self.set_epoch(0)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the datasets."""
        return tuple(self._datasets)

    @property
    def quotas(self) -> dict[str, int]:
        """Samples per epoch, by dataset."""
        return {
            name: round(len(dataset) * self.ratios[name])
            for name, dataset in self._datasets.items()
        }

    @property
    def fingerprint(self) -> str:
        """A digest of seed, ratios, and the sizes and fingerprints of the datasets."""
        pools = [
            [name, len(data), self.ratios[name], str(getattr(data, "fingerprint", ""))]
            for name, data in self._datasets.items()
        ]
        plain = json.dumps([pools, self.seed])
        return hashlib.sha256(plain.encode()).hexdigest()[:32]

    def set_epoch(self, epoch: int) -> None:
        """Forward the epoch to the datasets, then draw its samples and their order."""
        self.epoch = require_integer("epoch", epoch, 0)
        for dataset in self._datasets.values():
            if hasattr(dataset, "set_epoch"):
                dataset.set_epoch(epoch)
        drawn = [
            _draw(len(dataset), self.quotas[name], self._seed("draw", name))
            for name, dataset in self._datasets.items()
        ]
        sources = np.repeat(np.arange(len(drawn)), [len(part) for part in drawn])
        order = permutation(len(sources), self._seed("order"))
        self._sources: Ints = sources[order]
        self._indices: Ints = np.concatenate(drawn)[order]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {quota:,}" for name, quota in self.quotas.items())
        return f"FusionDataset({parts}, seed={self.seed}, epoch {self.epoch})"

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, position: int) -> Any:  # noqa: ANN401 - whatever the datasets hold
        name, index = self.locate(position)
        return self._datasets[name][index]

    def source_of(self, position: int) -> str:
        """The name of the dataset that the sample at this position comes from."""
        return self.names[int(self._sources[position])]

    def locate(self, position: int) -> tuple[str, int]:
        """The name of a sample's dataset, and its index there."""
        index = range(len(self))[position]
        return self.source_of(index), int(self._indices[index])

    def fused_sizes(self, reader: SampleReader) -> IntArray | None:
        """Sizes of all samples in this epoch's order, if those of every dataset are known."""
        fused = np.zeros((len(self), len(reader.names)), dtype=np.int64)
        for number, (name, dataset) in enumerate(self._datasets.items()):
            sizes = known_sizes(dataset, self._lengths.get(name), reader)
            if sizes is None:
                return None
            mine = self._sources == number
            fused[mine] = sizes[self._indices[mine]]
        return fused

    def _seed(self, *purpose: str) -> int:
        key = json.dumps([self.seed, self.epoch, *purpose]).encode()
        return int.from_bytes(hashlib.sha256(key).digest()[:16], "little")


def _draw(pool: int, quota: int, seed: int) -> Ints:
    """Indices below ``pool``: each once in random order, the rest drawn at random."""
    once = permutation(pool, seed)[:quota].astype(np.int64)
    again = np.random.PCG64(seed ^ 1).random_raw(quota - len(once)) % np.uint64(max(1, pool))
    return np.concatenate([once, again.astype(np.int64)])


def _checked_datasets(datasets: object) -> dict[str, Any]:
    if not isinstance(datasets, Mapping) or not datasets:
        raise InvalidOption(f"datasets is {datasets!r:.60} but must map names to datasets")
    for name, dataset in datasets.items():
        if not isinstance(name, str) or not name:
            raise InvalidOption(f"datasets has the name {name!r} but names are non-empty strings")
        if not has_random_access(dataset) or isinstance(dataset, Mapping):
            raise InvalidOption(
                f"dataset {name!r} is {type(dataset).__name__} but needs __len__ and __getitem__ "
                "because its quota is a fraction of its length"
            )
    return dict(sorted(datasets.items()))  # the order of names must not matter


def _checked_ratios(
    datasets: Mapping[str, Any], ratios: Mapping[str, float] | None
) -> dict[str, float]:
    if ratios is not None and not isinstance(ratios, Mapping):
        raise InvalidOption(f"ratios is {ratios!r:.60} but must map the datasets' names to numbers")
    given = dict.fromkeys(datasets, 1.0) if ratios is None else dict(ratios)
    for name in given:
        if name not in datasets:
            raise unknown_name("dataset in ratios", name, datasets)
    for name in datasets:
        if name not in given:
            raise InvalidOption(f"dataset {name!r} has no ratio; give one, or 0 to leave it out")
        what = f"the ratio of dataset {name!r}"
        given[name] = ratio = Number(least=0)(what, given[name])
        if len(datasets[name]) * ratio > _MOST_SAMPLES:
            raise InvalidOption(
                f"{what} is {ratio!r:.60}, which gives more than "
                f"{_MOST_SAMPLES} samples from {len(datasets[name])}; lower it or train longer"
            )
    if not sum(round(len(data) * given[name]) for name, data in datasets.items()):
        raise InvalidOption(f"the ratios {given} leave no samples; raise one of them")
    return {name: given[name] for name in datasets}
