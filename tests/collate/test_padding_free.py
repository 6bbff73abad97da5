from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.testing import CompileCounter
from transformers import DataCollatorWithFlattening

from quire.collate import PaddingFreeCollator
from quire.errors import InvalidBoundaries, InvalidOption, InvalidRow

ROWS = [
    {"input_ids": [5, 6, 2, 7, 2], "document_starts": [0, 3]},
    {"input_ids": [8, 9, 2], "document_starts": [0]},
]


def test_rows_are_concatenated_and_every_document_is_a_segment():
    batch = PaddingFreeCollator()(copy.deepcopy(ROWS))
    assert batch["input_ids"].tolist() == [[5, 6, 2, 7, 2, 8, 9, 2]]
    assert batch["labels"].tolist() == [[-100, 6, 2, -100, 2, -100, 9, 2]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0, 1, 2]]
    assert batch["seq_idx"].tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]
    assert batch["cu_seq_lens_q"].tolist() == batch["cu_seq_lens_k"].tolist() == [0, 3, 5, 8]
    assert batch["max_length_q"] == batch["max_length_k"] == 3
    assert batch["use_cache"] is False


documents = st.lists(st.lists(st.integers(3, 60), min_size=1, max_size=7), min_size=1, max_size=6)


@given(documents, st.booleans())
def test_rows_of_one_document_equal_those_of_transformers(rows, with_labels):
    features = [{"input_ids": row} for row in rows]
    if with_labels:
        features = [row | {"labels": [-100, *row["input_ids"][1:]]} for row in features]
    theirs = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)(
        copy.deepcopy(features)
    )
    ours = PaddingFreeCollator()(features)
    assert set(ours) == {*theirs, "use_cache"}
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert ours[name].dtype == value.dtype and torch.equal(ours[name], value), name
        else:
            assert ours[name] == value, name


def test_packed_rows_equal_those_of_trl():
    sft_trainer = pytest.importorskip("trl.trainer.sft_trainer")
    lengths = [[3, 2], [3]]
    features = [
        row | {"seq_lengths": own, "labels": row["input_ids"]}
        for row, own in zip(ROWS, lengths, strict=True)
    ]
    collator = sft_trainer.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    theirs = collator(copy.deepcopy(features))
    ours = PaddingFreeCollator()(features)
    for name, value in theirs.items():
        assert torch.equal(torch.as_tensor(ours[name]), torch.as_tensor(value)), name


def test_labels_loss_masks_and_eos_apply_to_every_row():
    tokenizer = SimpleNamespace(eos_token_id=2)
    rows = [row | {"loss_mask": [1] * len(row["input_ids"])} for row in ROWS]
    rows[1]["loss_mask"] = [1, 0, 1]
    assert PaddingFreeCollator(return_tensors="np")(rows)["labels"].tolist() == [
        [-100, 6, 2, -100, 2, -100, -100, 2]
    ]
    collator = PaddingFreeCollator(tokenizer, train_on_eos=False, return_tensors="np")
    assert collator(ROWS)["labels"].tolist() == [[-100, 6, -100, -100, -100, -100, 9, -100]]


# A fixed shape


def test_a_fixed_shape_pads_the_row_in_segments_of_its_own():
    tokenizer = SimpleNamespace(pad_token_id=2, eos_token_id=2)
    collator = PaddingFreeCollator(
        tokenizer, num_tokens=16, num_segments=8, max_length=5, return_tensors="np"
    )
    batch = collator(ROWS)
    assert batch["input_ids"][0, 8:].tolist() == [2] * 8
    assert batch["labels"][0, 8:].tolist() == [-100] * 8
    assert batch["position_ids"][0, 8:].tolist() == [0, 1, 2, 3, 4, 0, 1, 2]
    assert batch["seq_idx"][0, 8:].tolist() == [3] * 5 + [4] * 3
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 5, 8, 13, 16, 16, 16, 16]
    assert batch["max_length_q"] == 5


def test_a_full_row_of_a_fixed_shape_has_no_padding():
    collator = PaddingFreeCollator(num_tokens=8, num_segments=3, return_tensors="np")
    batch = collator(ROWS)
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 5, 8]
    assert batch["max_length_q"] == 8


def compilations(collator: PaddingFreeCollator) -> int:
    counter = CompileCounter()
    torch._dynamo.reset()

    @torch.compile(backend=counter, dynamic=False)
    def step(batch):
        lengths = batch["cu_seq_lens_q"].diff()
        return batch["input_ids"].sum() + lengths.sum() * batch["max_length_q"]

    rng = np.random.default_rng(0)
    for num_rows in (2, 3, 4, 2):
        rows = [{"input_ids": rng.integers(3, 60, rng.integers(1, 9))} for _ in range(num_rows)]
        step(collator(rows))
    torch._dynamo.reset()
    return counter.frame_count


def test_a_fixed_shape_compiles_once_and_a_free_one_does_not():
    assert compilations(PaddingFreeCollator(num_tokens=64, num_segments=16, max_length=16)) == 1
    assert compilations(PaddingFreeCollator(num_tokens=64, num_segments=16)) == 1
    assert compilations(PaddingFreeCollator()) > 1


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_tokens": 7}, "the 2 rows have 8 tokens but num_tokens is 7"),
        ({"num_segments": 2}, "the batch has 3 segments, .* but num_segments is 2"),
        ({"num_tokens": 9, "num_segments": 3}, "the batch has 4 segments"),
        ({"max_length": 2}, "row 0 has a document of 3 tokens but max_length is 2"),
    ],
)
def test_rows_that_do_not_fit_the_fixed_shape_are_rejected(options, message):
    with pytest.raises(InvalidRow, match=message):
        PaddingFreeCollator(**options)(ROWS)


def test_the_row_whose_document_is_too_long_is_named():
    rows = [*ROWS, {"input_ids": [3, 4, 5, 6]}]
    with pytest.raises(InvalidRow, match="row 2 has a document of 4 tokens but max_length is 3"):
        PaddingFreeCollator(max_length=3)(rows)


def test_invalid_starts_are_reported_with_their_row():
    rows = [ROWS[0], {"input_ids": [8, 9, 2], "document_starts": [0, 3]}]
    with pytest.raises(InvalidBoundaries, match=r"row 1: document_starts\[1\] is 3"):
        PaddingFreeCollator()(rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_tokens": 0}, "num_tokens is 0 but must be"),
        ({"num_segments": 1.5}, "num_segments is 1.5 but must be"),
        ({"return_tensors": "jax"}, "unknown return_tensors 'jax'"),
        ({"train_on_eos": False}, "eos_token_id is not set"),
    ],
)
def test_invalid_options_are_rejected_when_the_collator_is_made(options, message):
    with pytest.raises(InvalidOption, match=message):
        PaddingFreeCollator(**options)


def test_starts_are_found_from_tokens_in_a_padding_free_batch():
    row = {"input_ids": [5, 2, 6, 7, 2]}
    for packed, bounds in ((True, [0, 2, 5]), (False, [0, 5])):
        collator = PaddingFreeCollator(
            SimpleNamespace(eos_token_id=2), return_tensors="np", packed_sequences=packed
        )
        assert collator([row])["cu_seq_lens_q"].tolist() == bounds
