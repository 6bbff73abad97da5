"""Rows of samples with images: planned within all budgets, with the images beside the tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from quire.corpus.encoding import FILE_SHIFT
from quire.corpus.options import CorpusOptions
from quire.dataset.documents import without
from quire.dataset.supervision import supervised_by_labels
from quire.documents import Documents, Media, StoredImage
from quire.errors import OversizedDocument, SourceChanged, SourceError
from quire.gather import IntArray, gather
from quire.options.names import option, setting
from quire.plan import Plan, PlanOptions, plan_documents
from quire.plan.budgets import plan_within_budgets

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
    media = _media_of(documents)
    measures, budgets = _measures(documents, media, corpus)
    whole, supervised = replace(options, overlong="error"), supervised_by_labels(documents)
    if budgets:
        plan = plan_within_budgets(documents.lengths, measures, budgets, whole, supervised)
    else:
        plan = plan_documents(documents.lengths, whole, supervised)
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
    images = _media_of(documents).images
    held = sum(image.num_bytes for image in images if embeds or image.data is not None)
    return max(max_length, held // (_BYTES_PER_TOKEN * max(1, num_rows)))


def _media_of(documents: Documents) -> Media:
    if documents.media is None:
        raise TypeError("these documents have no images")
    return documents.media


def _measures(
    documents: Documents, media: Media, corpus: CorpusOptions
) -> tuple[IntArray, list[int]]:
    """Images and patches of every document, as far as they are limited, and their limits."""
    limited = (
        (corpus.max_images, media.counts_of(documents.numbers)),
        (corpus.max_patches, media.patches_of(documents.numbers)),
    )
    kept = [(limit, values) for limit, values in limited if limit is not None]
    columns = [values for _, values in kept]
    sizes = np.column_stack(columns) if kept else np.zeros((len(documents), 0), np.int64)
    return sizes, [limit for limit, _ in kept]


def _fitting(
    documents: Documents, options: PlanOptions, corpus: CorpusOptions, files: Sequence[str]
) -> Documents:
    """The samples that fit into a row, as they are never cut; the others are dropped, or raise."""
    media = _media_of(documents)
    checks = (
        ("tokens", "max_length", options.row_space, documents.lengths, "too_long"),
        *(
            (name.removeprefix("max_"), name, limit, counts, "skipped_oversized")
            for name, limit, counts in (
                ("max_images", corpus.max_images, media.counts_of(documents.numbers)),
                ("max_patches", corpus.max_patches, media.patches_of(documents.numbers)),
            )
            if limit is not None
        ),
    )
    over = {reason: np.zeros(len(documents), dtype=bool) for *_, reason in checks}
    for unit, name, limit, values, reason in checks:
        if corpus.overlong != "drop" and (values > limit).any():
            first = int(np.argmax(values > limit))
            file, record = divmod(int(documents.numbers[first]), 1 << FILE_SHIFT)
            raise OversizedDocument(
                f"{files[file]}: record {record} has {values[first]} {unit} but a row holds "
                f"{limit}, and a sample with images is never cut; drop such samples "
                f"({setting('overlong', 'drop')}) or raise {option(name)}"
            )
        over[reason] |= values > limit
    too_long = over.pop("too_long")
    for reason, which in over.items():
        documents = without(documents, which & ~too_long, reason)
        too_long = too_long[~(which & ~too_long)]
    return without(documents, too_long, "too_long")


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
    return {image.sha256: image.source for image in _media_of(documents).images}


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
