"""Saved states of packed vision-language datasets, and the files of their images."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from quire.vision import PackedVLDataset
from tests.fuzz.mutation import mutated_bytes
from tests.fuzz.target import Subject, Target, by_name
from tests.fuzz.targets.states import of_json
from tests.vision.inputs import KINDS, ByNumber, sample, samples


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


class _Decoding(ByNumber):
    """Open an image when its sample is read."""

    def __getitem__(self, number: int) -> dict[str, Any]:
        given = super().__getitem__(number)
        with Image.open(io.BytesIO(given["image"])) as image:
            pixels = np.asarray(image.convert("RGB"))
        return {**given, "pixel_values": pixels[None]}


def _vision_images(_folder: Path) -> Subject:
    """An image between two good ones: it is packed or left out, and they are packed."""
    pixels = np.random.default_rng(0).integers(0, 255, (24, 24, 3), dtype=np.uint8)
    kinds = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "TGA", "ICO", "JPEG2000")
    seeds = [_as_file(Image.fromarray(pixels), kind) for kind in kinds]
    Image.MAX_IMAGE_PIXELS = 1 << 20
    logging.getLogger("quire.vision").setLevel(logging.ERROR)

    def make(choose: Random) -> bytes:
        return mutated_bytes(choose, choose.choice(seeds), seeds)

    def read(data: bytes) -> str | None:
        items = [sample(n, 3, image=image) for n, image in enumerate((seeds[0], data, seeds[1]))]
        dataset = PackedVLDataset(
            _Decoding(items), packing_length=16, packing_drop_last=False, max_bad_records=1
        )
        (pack,) = dataset
        numbers = [item["number"] for item in pack]
        assert numbers in ([0, 1, 2], [0, 2])
        ledger = dataset.telemetry().ledger.check()
        assert ledger.documents.dropped["bad_record"] == 3 - len(numbers)
        return None if len(numbers) == 3 else "bad record"

    return Subject(make=make, read=read)


def _as_file(image: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


TARGETS = by_name(
    Target(name="vision_state", prepare=_vision_state),
    Target(name="vision_images", prepare=_vision_images),
)
