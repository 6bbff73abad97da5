"""Collate rows of samples with images that `quire pack` wrote: read images, then samples."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from quire.collate.rows import Feature
from quire.collate.vision.collators import VisionBatch, VisionPaddingFreeCollator
from quire.errors import InvalidRow, SourceChanged, SourceError
from quire.formats.images import MOST_PIXELS, decode_image
from quire.formats.record_kinds import RecordProblem

ImageProcessor = Callable[..., Mapping[str, Any]]
_PER_TOKEN = ("input_ids", "labels", "mm_token_type_ids")


@dataclass(frozen=True)
class PackedVisionCollator:
    """Makes batches of packed rows: decodes their images, and collates samples as packs.

    ``image_processor`` is the one of the model (``processor.image_processor``): it is called with
    ``images=`` and ``return_tensors="np"`` and returns ``pixel_values`` and ``image_grid_thw``,
    which must be the grids that the rows were packed with. Relative paths of images start at
    ``image_root``. An image whose file has changed since it was packed is an error.

    >>> import numpy as np
    >>> row = {"input_ids": np.arange(5), "document_starts": np.array([0, 3])}
    >>> collate = PackedVisionCollator(None, VisionPaddingFreeCollator(return_tensors="np"))
    >>> [sample["input_ids"].tolist() for sample in collate.samples(row)]
    [[0, 1, 2], [3, 4]]
    """

    image_processor: ImageProcessor | None
    collator: VisionPaddingFreeCollator = field(default_factory=VisionPaddingFreeCollator)
    _: KW_ONLY
    image_root: str | os.PathLike[str] | None = None
    max_image_pixels: int = MOST_PIXELS

    def __call__(self, rows: Sequence[Feature]) -> VisionBatch:
        """The batch of these rows, each a row without padding or, if several, padded at its end."""
        return self.collator(self.samples_of(rows))

    def samples_of(self, rows: Sequence[Feature]) -> list[list[dict[str, Any]]]:
        """The samples of some rows, each row a pack as `quire.vision` makes them."""
        return [self.samples(row) for row in rows]

    def samples(self, row: Feature) -> list[dict[str, Any]]:
        """The samples of a row, as a processor returns them."""
        starts = np.append(row["document_starts"], len(row["input_ids"])).tolist()
        counts = row.get("num_images", [0] * (len(starts) - 1))
        ends = np.cumsum([0, *counts]).tolist()
        return [
            self._sample(row, slice(*tokens), slice(*images))
            for tokens, images in zip(pairwise(starts), pairwise(ends), strict=True)
        ]

    def _sample(self, row: Feature, tokens: slice, images: slice) -> dict[str, Any]:
        sample = {name: np.asarray(row[name])[tokens] for name in _PER_TOKEN if name in row}
        if images.start == images.stop:
            return sample
        return {**sample, **self._pixels(row, images)}

    def _pixels(self, row: Feature, which: slice) -> dict[str, Any]:
        """Pixels and grids of some images of a row."""
        if self.image_processor is None:
            raise InvalidRow(
                "the row has images, but the collator has no image_processor; pass the model's: "
                "PackedVisionCollator(processor.image_processor)"
            )
        decoded = [self._decoded(image) for image in row["images"][which]]
        made = self.image_processor(images=decoded, return_tensors="np")
        grids = np.asarray(made["image_grid_thw"])
        packed = np.asarray(row["image_grid_thw"])[which]
        if not np.array_equal(grids, packed):
            raise InvalidRow(
                f"the image processor makes grids {grids.tolist()} of images that were packed with "
                f"{packed.tolist()}; use the processor and the pixel limits they were packed with"
            )
        return {"pixel_values": np.asarray(made["pixel_values"]), "image_grid_thw": grids}

    def _decoded(self, image: Mapping[str, Any]) -> Any:  # noqa: ANN401 - Pillow's
        data, shown = image["bytes"], image["path"] or "an embedded image"
        if data is None:
            path = Path(self.image_root or "") / image["path"]
            shown, data = str(path), _read(path)
        if hashlib.sha256(data).hexdigest() != image["sha256"]:
            raise SourceChanged(
                f"{shown} is not the image that was packed: its SHA-256 differs; restore it, or "
                "pack again"
            )
        try:
            return decode_image(data, self.max_image_pixels)
        except RecordProblem as problem:
            raise InvalidRow(f"{shown}: the row {problem}; raise max_image_pixels") from problem


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceError(
            f"the image {path} cannot be read: {error.strerror or error}; pass image_root=, the "
            "folder that relative paths start at, or pack with embed_images"
        ) from error
