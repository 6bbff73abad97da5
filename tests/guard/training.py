"""Collators, masks, labels and vision packs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

import quire
from quire.boundaries import Boundaries
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire.labels import causal_labels, loss_weights
from quire.masks.dense import bool_mask, float_mask
from quire.masks.varlen import kernel_arguments, varlen_arguments
from quire.vision import FusionDataset, PackedVLDataset
from tests.guard.plans import Case
from tests.vision.inputs import samples

ROWS = [
    {"input_ids": [1, 10, 11, 2, 1, 20, 2, 1], "document_starts": [0, 4, 7]},
    {"input_ids": [1, 30, 31, 32, 2], "document_starts": [0]},
]
LABELLED = [{**row, "labels": [-100, *row["input_ids"][1:]]} for row in ROWS]
COLLATORS: dict[str, dict[str, object]] = {
    "transformers": {},
    "three_keys": {"attention": None},
    "sdpa": {"attention": "sdpa"},
    "eager": {"attention": "eager"},
    "varlen": {"attention": "varlen"},
    "segments": {"attention": "segments"},
    "boundary_loss": {"mask_boundary_loss": False},
    "without_eos": {"train_on_eos": False},
    "padded_documents": {"attention": "varlen", "pad_documents_to": 4},
    "truncated": {"truncation": True, "max_length": 6},
    "unpacked": {"packed_sequences": False},
}
VISION: dict[str, dict[str, object]] = {
    "plain": {},
    "small_buffer": {"packing_buffer": 6},
    "kept_tail": {"packing_drop_last": False},
    "capped": {"packing_max_documents": 2},
    "ranks": {"rank": 1, "world_size": 2},
}
SEGMENTS = np.array([[1, 1, 1, 2, 2, 3, 0, 0], [1, 1, 2, 2, 2, 2, 2, 0]])


def cases() -> Iterator[tuple[str, Case]]:
    for name, options in COLLATORS.items():
        yield f"collate/{name}", partial(_collated, options)
    yield "collate/padding_free", _padding_free
    yield "masks", _masks
    yield "labels", _labels
    yield "boundaries", _boundaries
    for name, options in VISION.items():
        yield f"vision/known/{name}", partial(_vision, True, options)
        yield f"vision/unknown/{name}", partial(_vision, False, options)
    yield "vision/fusion", _fusion


def _collated(options: dict[str, object], _folder: Path) -> dict[str, object]:
    collate = DataCollatorForCausalLM(quire.ByteTokenizer(), **options)
    return {"batch": dict(collate(ROWS)), "labelled": dict(collate(LABELLED))}


def _padding_free(_folder: Path) -> dict[str, object]:
    return {"batch": dict(PaddingFreeCollator(quire.ByteTokenizer())(ROWS))}


def _masks(_folder: Path) -> dict[str, object]:
    return {
        "bool": [bool_mask(SEGMENTS), bool_mask(SEGMENTS, window=2)],
        "float": float_mask(SEGMENTS, np.float32),
        "varlen": [dict(varlen_arguments(SEGMENTS)), dict(kernel_arguments(SEGMENTS, window=2))],
    }


def _labels(_folder: Path) -> dict[str, object]:
    ids = np.arange(16).reshape(2, 8)
    return {"labels": causal_labels(ids, SEGMENTS), "weights": loss_weights(ids, SEGMENTS)}


def _boundaries(_folder: Path) -> dict[str, object]:
    rows = Boundaries.of_rows([[0, 3, 5], [0, 2]], [6, 7], width=8)
    return {name: getattr(rows, name)() for name in ("segment_ids", "position_ids")}


def _vision(known: bool, options: dict[str, object], _folder: Path) -> dict[str, object]:
    lengths = [int(n) for n in np.random.default_rng(2).integers(3, 70, 60)]
    items = samples(lengths)
    dataset = PackedVLDataset(
        items, packing_length=64, seed=4, lengths=lengths if known else None, **options
    )
    packs = [[sample["number"] for sample in pack] for pack in dataset]
    return {"packs": packs, "ledger": dataset.telemetry().ledger, "state": dataset.state_dict()}


def _fusion(_folder: Path) -> dict[str, object]:
    sources = {"a": samples([5] * 10), "b": samples([7] * 6)}
    fused = FusionDataset(sources, {"a": 0.5, "b": 1.5}, seed=1)
    return {"numbers": [sample["length"] for sample in fused]}
