"""Rows of samples with images: planned within all budgets, with the images beside the tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from quire.corpus.encoding import FILE_SHIFT
from quire.corpus.options import CorpusOptions
from quire.corpus.vision_plan import (
    SampleSizes,
    dropped_for,
    media_of,
    plan_samples,
    require_droppable,
)
from quire.dataset.documents import without
from quire.dataset.supervision import supervised_by_labels
from quire.documents import Documents, Media, StoredImage
from quire.errors import SourceChanged, SourceError
from quire.gather import gather
from quire.plan import Plan, PlanOptions

IMAGE = pa.struct({"path": pa.string(), "bytes": pa.binary(), "sha256": pa.string()})
MEDIA = {
    "num_images": pa.list_(pa.int32()),
    "image_grid_thw": pa.list_(pa.list_(pa.int32(), 3)),
    "images": pa.list_(IMAGE),
}
"""Columns of rows: images of each fragment, and the grid and the file of each image."""
_BYTES_PER_TOKEN = 16
"""How many bytes of images count as much as a token when row groups are made."""


def vision_rows(
    documents: Documents, options: PlanOptions, corpus: CorpusOptions, files: Sequence[str]
) -> tuple[pa.Table, Plan, Documents]:
    """The rows of these samples, without the bytes of files that are to be embedded."""
    documents = _fitting(documents, options, corpus, files)
    media = media_of(documents)
    plan = plan_samples(SampleSizes.of(documents), options, corpus, supervised_by_labels(documents))
    rows = gather(documents, plan, keep_sources=corpus.keep_sources)
    for name, column in _media_columns(documents, media, plan).items():
        rows = rows.append_column(name, column)
    return rows, plan, documents


def embed_images(rows: pa.Table, sources: dict[str, str]) -> pa.Table:
    """The rows with the bytes of their image files; ``sources`` are the files by SHA-256."""
    at = rows.schema.get_field_index("images")
    column = rows.column(at).combine_chunks()
    images = [_embedded(image, sources) for image in column.flatten().to_pylist()]
    offsets = column.offsets.to_numpy()
    filled = pa.ListArray.from_arrays(
        pa.array(offsets - offsets[0], pa.int32()), pa.array(images, IMAGE)
    )
    return rows.set_column(at, rows.schema.field(at), filled)


def tokens_per_row(documents: Documents, num_rows: int, max_length: int, embeds: bool) -> int:
    """What a row counts as when row groups are made: tokens, or bytes of its images."""
    images = media_of(documents).images
    held = sum(image.num_bytes for image in images if embeds or image.data is not None)
    return max(max_length, held // (_BYTES_PER_TOKEN * max(1, num_rows)))


def _fitting(
    documents: Documents, options: PlanOptions, corpus: CorpusOptions, files: Sequence[str]
) -> Documents:
    """The samples that fit into a row, as they are never cut; the others are dropped, or raise."""
    limits = SampleSizes.of(documents).limits(options, corpus)

    def name(sample: int) -> str:
        file, record = divmod(int(documents.numbers[sample]), 1 << FILE_SHIFT)
        return f"{files[file]}: record {record}"

    require_droppable(limits, corpus, name)
    left = np.ones(len(documents), dtype=bool)
    for reason, which in reversed(dropped_for(limits)):
        documents = without(documents, which[left], reason)
        left &= ~which
    return documents


def _media_columns(documents: Documents, media: Media, plan: Plan) -> dict[str, pa.Array]:
    numbers = documents.numbers[plan.documents]
    counts = media.counts_of(numbers)
    places = media.places_of(numbers)
    ends = np.append(0, np.cumsum(counts))[plan.row_offsets]
    grids = pa.array(media.grids[places].astype(np.int32).ravel())
    images = [_stored(media.images[place]) for place in places.tolist()]
    return {
        "num_images": pa.ListArray.from_arrays(
            pa.array(plan.row_offsets, pa.int32()), pa.array(counts.astype(np.int32))
        ),
        "image_grid_thw": pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.FixedSizeListArray.from_arrays(grids, 3)
        ),
        "images": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(images, IMAGE)),
    }


def _stored(image: StoredImage) -> dict[str, object]:
    return {"path": image.path, "bytes": image.data, "sha256": image.sha256}


def sources_of(documents: Documents) -> dict[str, str]:
    """The files of images by SHA-256."""
    return {image.sha256: image.source for image in media_of(documents).images}


def _embedded(image: dict[str, object], sources: dict[str, str]) -> dict[str, object]:
    if image["bytes"] is not None:
        return image
    path = Path(sources[str(image["sha256"])])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read again: {error.strerror or error}; committed shards are kept: "
            "fix the cause, then resume"
        ) from error
    if hashlib.sha256(data).hexdigest() != image["sha256"]:
        raise SourceChanged(f"{path} was changed while it was packed; pack again")
    return {**image, "bytes": data}
