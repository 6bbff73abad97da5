"""Small samples with images: 5 is a question, 6 an answer, 7 the placeholder of an image."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

IMAGE = 7
PATCH, MERGE = 14, 2


def image(path: Path, height: int, width: int, seed: int = 0) -> Path:
    """A PNG of this many merged patches on each side."""
    side = PATCH * MERGE
    pixels = np.random.default_rng(seed).integers(0, 255, (height * side, width * side, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def sample(folder: Path, name: str, question: int, *sizes: tuple[int, int], answer: int = 3):
    """An encoded sample with images of these sizes in merged patches."""
    ids, names = [5] * question, []
    for number, (height, width) in enumerate(sizes):
        names.append(image(folder / f"{name}-{number}.png", height, width, number).name)
        ids += [IMAGE] * (height * width)
    return {
        "input_ids": [*ids, *[6] * answer],
        "labels": [-100] * len(ids) + [6] * answer,
        "images": names,
        "image_grid_thw": [[1, height * MERGE, width * MERGE] for height, width in sizes],
    }


def samples(folder: Path, count: int = 40, seed: int = 0) -> list[dict]:
    """Random samples with up to three images."""
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        sizes = [tuple(random.integers(1, 4, 2).tolist()) for _ in range(random.integers(0, 4))]
        question, answer = random.integers(1, 20, 2).tolist()
        made.append(sample(folder, f"s{seed}-{number}", question, *sizes, answer=answer))
    return made


def write(folder: Path, records: list[dict], name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path
