"""Datasets that fail once at given samples, and loops that continue after an error."""

from __future__ import annotations

from quire.vision import PackedVLDataset
from tests.vision.inputs import ByNumber, numbers, through_bytes

LENGTHS = [5 + n * 7 % 40 for n in range(100)]
PASSING = (OSError, KeyboardInterrupt)
"""Errors that say nothing about a sample and may not recur."""


class FailsOnce(ByNumber):
    """By number; raises the errors of a sample one after another, then returns it."""

    def __init__(self, items, errors):
        super().__init__(items)
        self.errors = {number: list(kinds) for number, kinds in errors.items()}

    def __getitem__(self, number):
        if self.errors.get(number):
            raise self.errors[number].pop(0)(5, f"sample {number}")
        return super().__getitem__(number)


class InTurn:
    """Read in order, by an iterator that skips a sample after raising its error."""

    def __init__(self, items, errors):
        self.inner = FailsOnce(items, errors)

    def __iter__(self):
        return map(self.inner.__getitem__, range(len(self.inner)))


class Generated(InTurn):
    """Read in order, by a generator, which ends at an error."""

    def __iter__(self):
        for number in range(len(self.inner)):
            yield self.inner[number]


WAYS = {
    f"{known}{name}": (kind, bool(known))
    for known in ("", "planned ")
    for name, kind in (("by number", FailsOnce), ("in turn", InTurn), ("generated", Generated))
}
"""How samples are read, and whether their lengths are known in advance."""


def packed(dataset, known=False, lengths=LENGTHS, **options):
    given = {"packing_length": 80, "packing_buffer": 16, "packing_drop_last": False, **options}
    return PackedVLDataset(dataset, **given, **({"lengths": lengths} if known else {}))


def retried(make):
    """All packs and the dataset: after an error, the same iterator is used again."""
    dataset, seen = make(), []
    packs = iter(dataset)
    while True:
        try:
            seen += numbers([next(packs)])
        except StopIteration:
            return seen, dataset
        except PASSING:
            continue


def resumed(make, *, anew=True):
    """All packs and the last dataset: after an error, a dataset continues from the state."""
    dataset, seen = make(), []
    while True:
        try:
            for pack in dataset:
                seen += numbers([pack])
            return seen, dataset
        except PASSING:
            state = through_bytes(dataset.state_dict())
            dataset.telemetry()  # raises unless it balances
            dataset = make() if anew else dataset
            dataset.load_state_dict(state)


def iterated_anew(make):
    """The same, but the dataset itself continues from its own state."""
    return resumed(make, anew=False)


CONTINUED = {"retried": retried, "resumed": resumed, "iterated anew": iterated_anew}
