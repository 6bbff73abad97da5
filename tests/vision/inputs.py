"""Samples and datasets of every kind, and a naive packer to compare with."""

from __future__ import annotations

import json

import numpy as np


def sample(number, length, **others):
    """A sample whose tokens identify it."""
    ids = [1000 * number + place for place in range(length)]
    return {"input_ids": ids, "labels": list(ids), "length": length, "number": number, **others}


def samples(lengths):
    return [sample(number, length) for number, length in enumerate(lengths)]


class ByNumber:
    """Map-style, without lengths: they are unknown until a sample is read."""

    def __init__(self, items):
        self.items = list(items)
        self.reads = []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, number):
        self.reads.append(number)
        return self.items[number]


class InOrder:
    """Iterable only."""

    def __init__(self, items):
        self.items = list(items)

    def __iter__(self):
        return iter(self.items)


class Reordered(ByNumber):
    """Another order in every epoch; records the epochs it is set to."""

    def __init__(self, items):
        super().__init__(items)
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)
        self.order = np.random.default_rng(epoch).permutation(len(self.items))

    def __getitem__(self, number):
        return self.items[self.order[number] if self.epochs else number]


KINDS = {"known": list, "by number": ByNumber, "in order": InOrder}
"""How the samples reach the dataset: with known lengths, without, or as an iterable."""


def numbers(packs):
    """The samples of each pack, by number."""
    return [[item["number"] for item in pack] for pack in packs]


def through_bytes(state):
    return json.loads(json.dumps(state).encode().decode())


def best_fit_decreasing(lengths, max_length):
    """Groups of indices, by the textbook algorithm."""
    groups, free = [], []
    for place in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        fitting = [row for row, space in enumerate(free) if space >= lengths[place]]
        if fitting:
            row = min(fitting, key=lambda n: (free[n], n))
        else:
            row = len(free)
            groups.append([])
            free.append(max_length)
        groups[row].append(place)
        free[row] -= lengths[place]
    return groups


def naive_packs(lengths, max_length, buffer, ratio, drop_last):
    """The contract in plain loops: packs as lists of numbers, and those dropped at the end."""
    waiting, packs, todo = [], [], list(enumerate(lengths))

    def grouped():
        alone = [[item] for item in waiting if item[1] >= max_length]
        rest = [item for item in waiting if item[1] < max_length]
        old = [item for item in rest if item[2]]
        groups = best_fit_decreasing([item[1] for item in old], max_length)
        units = [[old[place] for place in group] for group in groups]
        units += [[item] for item in rest if not item[2]]
        groups = best_fit_decreasing([sum(i[1] for i in unit) for unit in units], max_length)
        return [[item for place in group for item in units[place]] for group in groups], alone

    def fill(group):
        return sum(item[1] for item in group) / max_length

    def leave(groups):
        packs.extend(sorted(sorted(item[0] for item in group) for group in groups))

    while len(todo) >= (room := max(1, buffer - len(waiting))):
        waiting += [(number, length, 0) for number, length in todo[:room]]
        todo = todo[room:]
        groups, alone = grouped()
        leaving = [g for g in groups if fill(g) >= ratio or any(item[2] >= 2 for item in g)]
        leave(leaving + alone)
        gone = {item[0] for group in leaving + alone for item in group}
        waiting = [(n, length, c + 1) for n, length, c in waiting if n not in gone]
    waiting += [(number, length, 0) for number, length in todo]
    groups, alone = grouped()
    under = [place for place, group in enumerate(groups) if fill(group) < ratio]
    dropped = groups.pop(under[-1]) if drop_last and under else []
    leave(groups + alone)
    return packs, sorted(item[0] for item in dropped)
