"""Recount the images of one shard: how many, how large, and whether they are those packed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import CorruptFile
from quire.verify.output.shards import Fragments, Ints, list_column

COLUMNS = ("num_images", "image_grid_thw", "images")
KINDS = ("vision", "vision_messages")
"""The kinds of records whose rows have these columns."""
_TYPES = "mm_token_type_ids"
UNREADABLE = "cannot be read:"
"""What is said of an image whose file is not there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """The images of all rows of a shard, end to end."""

    counts: Ints
    """Of each fragment."""
    grids: npt.NDArray[np.int64]
    files: list[dict[str, Any]]

    @property
    def patches(self) -> Ints:
        """Patches of each fragment."""
        return self._sums(self.grids.prod(axis=1))

    def _sums(self, values: Ints) -> Ints:
        ends = np.cumsum(self.counts)
        before = np.append(0, np.cumsum(values))
        sums: Ints = before[ends] - before[ends - self.counts]
        return sums


def read_images(name: str, table: pa.Table, per_row: Ints) -> Images:
    """The images of a table of rows; CorruptFile if their columns do not fit each other."""
    for column in COLUMNS:
        if column not in table.column_names:
            raise CorruptFile(f"{name} has no column {column}")
    counts, lengths = list_column(name, table, "num_images")
    grids, files = (table[column].combine_chunks() for column in COLUMNS[1:])
    sizes = [np.diff(lists.offsets.to_numpy()).astype(np.int64) for lists in (grids, files)]
    if not np.array_equal(lengths, per_row) or (len(counts) and counts.min() < 0):
        raise CorruptFile(f"{name} does not have one of num_images for each fragment")
    rows = np.repeat(np.arange(len(per_row)), per_row)
    needed = np.bincount(rows, counts, minlength=len(per_row)).astype(np.int64)
    if any(not np.array_equal(size, needed) for size in sizes):
        raise CorruptFile(f"{name} has rows with other images or grids than num_images says")
    flat = np.array(grids.flatten().to_pylist(), dtype=np.int64).reshape(-1, 3)
    if len(flat) and flat.min() < 1:
        raise CorruptFile(f"{name} has an image_grid_thw that is not positive")
    return Images(counts=counts.astype(np.int64), grids=flat, files=files.flatten().to_pylist())


def image_problems(
    name: str,
    table: pa.Table,
    fragments: Fragments,
    images: Images,
    options: Mapping[str, Any],
    folder: Path | None,
) -> Iterator[str]:
    """Samples that are cut, placeholders without an image, full rows, and changed images."""
    if fragments.offsets is not None and fragments.offsets.any():
        yield "holds a part of a sample with images, which are never cut"
    ids, types = (list_column(name, table, column)[0] for column in ("input_ids", _TYPES))
    labels = list_column(name, table, "labels")[0]
    token_id = options.get("image_token_id")
    if token_id is not None and ((ids == token_id) != (types == 1)).any():
        yield f"has {_TYPES} that are not where the token {token_id} is"
    if (labels[types != 0] != -100).any():
        yield "trains placeholders of images"
    before = np.append(0, np.cumsum(types == 1))
    ends = np.cumsum(fragments.sizes)
    found = before[ends] - before[ends - fragments.sizes]
    needed = images.patches // int(options.get("merge_size", 2)) ** 2
    if (found != needed).any():
        at = int(np.argmax(found != needed))
        yield f"fragment {at} has {found[at]} image placeholders but its images need {needed[at]}"
    yield from _budget_problems(fragments.per_row, images, options)
    yield from _file_problems(images.files, folder)


def unchecked(images: Sequence[Mapping[str, Any]], folder: Path | None) -> int:
    """How many images cannot be found, as their paths start at a folder that is not known."""
    return sum(_path_of(image, folder) is None and image["bytes"] is None for image in images)


def _budget_problems(per_row: Ints, images: Images, options: Mapping[str, Any]) -> Iterator[str]:
    rows = np.repeat(np.arange(len(per_row)), per_row)
    for unit, counts in (("images", images.counts), ("patches", images.patches)):
        most = options.get(f"max_{unit}")
        sums = np.bincount(rows, counts, minlength=len(per_row)).astype(np.int64)
        if most is not None and (sums > most).any():
            row = int(np.argmax(sums > most))
            yield f"row {row} has {sums[row]} {unit}, more than {most}"


def _file_problems(images: Sequence[Mapping[str, Any]], folder: Path | None) -> Iterator[str]:
    for image in images:
        data = image["bytes"]
        path = _path_of(image, folder)
        if data is None and path is None:
            continue
        try:
            content = data if data is not None or path is None else path.read_bytes()
        except OSError as error:
            yield f"the image {path} {UNREADABLE} {error.strerror or error}"
            continue
        if hashlib.sha256(content).hexdigest() != image["sha256"]:
            shown = "an embedded image" if data is not None else f"the image {path}"
            yield f"{shown} is not the one that was packed: its SHA-256 differs"


def _path_of(image: Mapping[str, Any], folder: Path | None) -> Path | None:
    path = None if image["path"] is None else Path(image["path"])
    if path is None or path.is_absolute():
        return path
    return None if folder is None else folder / path
