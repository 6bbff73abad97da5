"""Saved states of packed vision-language datasets."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from quire.vision import PackedVLDataset
from tests.fuzz.target import Subject, Target, by_name
from tests.fuzz.targets.states import of_json
from tests.vision.inputs import KINDS, samples


def _vision_state(_folder: Path) -> Subject:
    """States of packs that were planned, and of packs made of samples as they are read."""
    lengths = [(37 * n) % 90 + 1 for n in range(40)]
    datasets = [
        PackedVLDataset(KINDS[kind](samples(lengths)), packing_length=80, packing_buffer=7)
        for kind in ("known", "by number")
    ]
    seeds: list[list[str]] = []
    for dataset in datasets:
        found = [json.dumps(dataset.state_dict())]
        for number, _ in enumerate(dataset):
            if number in (0, 4, 9):
                found.append(json.dumps(dataset.state_dict()))
        seeds.append([*found, json.dumps(dataset.state_dict())])
    makers = [of_json(found) for found in seeds]

    def make(choose: Random) -> tuple[int, Any]:
        which = choose.randrange(len(datasets))
        return which, makers[which](choose)

    def read(given: tuple[int, Any]) -> None:
        which, state = given
        datasets[which].load_state_dict(state)
        for _, _pack in zip(range(3), datasets[which], strict=False):
            datasets[which].telemetry()
            datasets[which].state_dict()

    return Subject(make=make, read=read)


TARGETS = by_name(Target(name="vision_state", prepare=_vision_state))
