from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from tests.masks.oracle import segment_batches

from quire.masks.dense import bool_mask, float_mask
from quire.masks.flex import block_mask
from quire.masks.segments import seq_idx
from quire.masks.varlen import varlen_arguments
from quire.verify.isolation.consistency import disagreements
from quire.verify.isolation.documents import BatchDocuments

DOCUMENTS = BatchDocuments.of_segments([[1, 1, 1, 2, 2, 0], [1, 1, 2, 3, 3, 3]])


def parts(documents: BatchDocuments) -> dict:
    """Every part that a batch can have, all describing the same documents."""
    segments = documents.segments
    return {
        "segment_ids": segments,
        "position_ids": documents.position_ids(),
        "seq_idx": seq_idx(segments),
        "attention_mask": bool_mask(segments),
        **varlen_arguments(segments),
    }


@settings(deadline=None)
@given(segment_batches())
def test_parts_made_from_the_same_documents_agree(segments):
    documents = BatchDocuments.of_segments(segments)
    if documents.documents:
        assert disagreements(parts(documents), documents) == ()


def half_mask(segments, window):
    return float_mask(segments, torch.half, window)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize(
    "form", [bool_mask, block_mask, lambda *a: float_mask(a[0], torch.half, a[1])]
)
def test_masks_of_every_form_agree_with_and_without_a_window(form, window):
    mask = form(torch.from_numpy(DOCUMENTS.segments), window)
    assert disagreements({"attention_mask": mask}, DOCUMENTS) == ()


def open_mask():
    return bool_mask(np.ones((2, 6), dtype=int))


def mask_without(row, query, key):
    mask = bool_mask(DOCUMENTS.segments)
    mask[row, 0, query, key] = False
    return mask


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        ("position_ids", np.arange(6)[None].repeat(2, 0), "row 0 token 3 has position 3 but"),
        ("position_ids", np.zeros((3, 2, 6), dtype=int), "three rows of mRoPE"),
        ("position_ids", np.zeros((5, 2, 6), dtype=int), r"shape \(5, 2, 6\)"),
        ("segment_ids", np.array([[1] * 6, [1] * 6]), "row 0 token 3 starts at token 0, but"),
        ("seq_idx", np.array([[0, 0, 0, 1, 1, 2], [0] * 6]), "row 1 token 2 starts at token 0"),
        (
            "cu_seq_lens_q",
            np.array([0, 3, 5, 6, 8, 9, 13]),
            "do not increase from 0 to the 12 tokens",
        ),
        ("cu_seq_lens_k", np.array([0, 3, 5, 9, 12]), "row 1 token 0 starts in the row before"),
        ("max_length_q", 2, "2 is less than the 3 tokens"),
        ("attention_mask", np.array([[1, 1, 0, 1, 1, 0], [1] * 6]), "hides row 0 token 2"),
        ("attention_mask", open_mask(), "lets row 0 token 3 see token 0"),
        ("attention_mask", mask_without(1, 5, 4), "hides token 4 of its own document from row 1"),
    ],
)
def test_a_part_that_contradicts_the_documents_is_named_with_the_token(form, value, message):
    found = disagreements({form: value}, DOCUMENTS)
    assert [disagreement.form for disagreement in found] == [form]

    assert re.search(message, found[0].message), found[0].message


def test_parts_may_differ_on_padding():
    positions = DOCUMENTS.position_ids()
    positions[0, 5] = 17
    numbers = seq_idx(DOCUMENTS.segments)
    numbers[0, 5] = 1
    assert disagreements({"position_ids": positions, "seq_idx": numbers}, DOCUMENTS) == ()
