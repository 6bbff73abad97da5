from __future__ import annotations

import copy
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import BlockMask

from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire.errors import InvalidBoundaries, InvalidOption, InvalidRow
from quire.masks.dense import bool_mask, float_mask
from quire.masks.segments import seq_idx
from quire.masks.varlen import varlen_arguments

TOKENIZER = SimpleNamespace(pad_token_id=0, bos_token_id=1, eos_token_id=2)
PACKED = [
    {"input_ids": [5, 6, 2, 7, 2], "document_starts": [0, 3]},
    {"input_ids": [8, 9, 2], "document_starts": [0]},
]


def collate(features, tokenizer=TOKENIZER, **options):
    options = {"return_tensors": "np"} | options
    return DataCollatorForCausalLM(tokenizer, **options)(features)


# The batch


def test_the_default_batch_has_the_three_keys_and_no_cache():
    batch = DataCollatorForCausalLM(TOKENIZER)(PACKED)
    assert list(batch) == ["input_ids", "labels", "position_ids", "use_cache"]
    assert batch["use_cache"] is False
    assert batch["input_ids"].tolist() == [[5, 6, 2, 7, 2], [8, 9, 2, 0, 0]]
    assert batch["labels"].tolist() == [[-100, 6, 2, -100, 2], [-100, 9, 2, -100, -100]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 0, 1]]
    assert {batch[k].dtype for k in ("input_ids", "labels", "position_ids")} == {torch.int64}


def test_numpy_and_torch_batches_have_equal_values():
    arrays, tensors = collate(PACKED), collate(PACKED, return_tensors="pt")
    for name in ("input_ids", "labels", "position_ids"):
        assert isinstance(arrays[name], np.ndarray)
        assert arrays[name].tolist() == tensors[name].tolist()


def test_lists_arrays_and_tensors_give_the_same_batch_and_are_not_modified():
    expected = collate(PACKED)
    for kind in (list, np.array, torch.tensor, lambda x: np.array(x, dtype=np.int32), tuple):
        features = [{name: kind(values) for name, values in row.items()} for row in PACKED]
        before = copy.deepcopy(features)
        batch = collate(features)
        for name in ("input_ids", "labels", "position_ids"):
            assert np.array_equal(batch[name], expected[name])
            batch[name][:] = 77
        for row, old in zip(features, before, strict=True):
            assert all(np.array_equal(row[name], old[name]) for name in row)


def test_padding_with_the_id_of_eos_is_known_from_lengths():
    tokenizer = SimpleNamespace(pad_token_id=2, eos_token_id=2)
    for packed in (None, True):
        batch = collate(PACKED, tokenizer, packed_sequences=packed)
        assert batch["input_ids"][1].tolist() == [8, 9, 2, 2, 2]
        assert batch["labels"][1].tolist() == [-100, 9, 2, -100, -100]
        assert batch["position_ids"][1].tolist() == [0, 1, 2, 0, 1]


def test_a_tokenizer_without_pad_pads_with_eos_and_without_both_with_zero():
    assert collate(PACKED, SimpleNamespace(eos_token_id=9))["input_ids"][1, -1] == 9
    assert (
        collate(PACKED, SimpleNamespace(pad_token_id=None, eos_token_id=9))["input_ids"][1, -1] == 9
    )
    assert collate(PACKED, SimpleNamespace())["input_ids"][1, -1] == 0


def test_the_batch_uses_the_given_names():
    batch = collate(PACKED, input_name="x", labels_name="y", attention=None)
    assert list(batch) == ["x", "y", "position_ids"]


def test_a_custom_ignore_index_is_used_for_all_masked_labels():
    labels = collate(PACKED, ignore_index=-1)["labels"]
    assert labels.tolist() == [[-1, 6, 2, -1, 2], [-1, 9, 2, -1, -1]]


# packed_sequences


def test_rows_without_starts_are_packed_only_on_request():
    rows = [{"input_ids": [5, 2, 6, 2]}, {"input_ids": [7, 2]}]
    with pytest.warns(UserWarning, match="no row of the batch has document_starts"):
        batch = collate(rows)
    assert list(batch) == ["input_ids", "labels"]
    assert batch["labels"].tolist() == [[-100, 2, 6, 2], [-100, 2, -100, -100]]
    batch = collate(rows, packed_sequences=True)
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1], [0, 1, 0, 1]]
    assert batch["labels"].tolist() == [[-100, 2, -100, 2], [-100, 2, -100, -100]]


LOST = re.escape(
    "no row of the batch has document_starts, but row 1 has EOS (2) inside, at position 1: if rows "
    "are packed, their documents now attend to each other. A Trainer drops document_starts unless "
    "it is given remove_unused_columns=False. If every row is one document (chats contain EOS too)"
    ", packed_sequences=False says so and silences this"
)


@pytest.mark.parametrize("make", [DataCollatorForCausalLM, PaddingFreeCollator])
def test_a_warning_about_lost_starts_is_given_once(make):
    rows = [{"input_ids": [5, 6, 2]}, {"input_ids": [7, 2, 8, 2]}]
    collator = make(TOKENIZER, return_tensors="np")
    with pytest.warns(UserWarning, match=LOST) as warned:
        for _ in range(3):
            collator(rows)
    assert len(warned) == 1 and warned[0].filename == __file__
    with pytest.warns(UserWarning, match="row 0 has BOS \\(1\\) inside, at position 2"):
        make(SimpleNamespace(bos_token_id=1), return_tensors="np")([{"input_ids": [1, 5, 1, 6]}])


@pytest.mark.parametrize("make", [DataCollatorForCausalLM, PaddingFreeCollator])
@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"input_ids": [5, 2, 6, 2], "document_starts": [0]}, {}),
        ({"input_ids": [5, 2, 6, 2], "seq_lengths": [2, 2]}, {}),
        ({"input_ids": [5, 2, 6, 2], "position_ids": [0, 1, 0, 1]}, {}),
        ({"input_ids": [1, 5, 6, 2]}, {}),
        ({"input_ids": [2, 5, 6, 2]}, {}),
        ({"input_ids": [5, 2, 6, 2]}, {"packed_sequences": False}),
        ({"input_ids": [5, 2, 6, 2]}, {"packed_sequences": True}),
    ],
)
def test_no_warning_is_given_if_it_is_known_whether_rows_are_packed(make, row, options):
    make(TOKENIZER, return_tensors="np", **options)([row])  # warnings are errors here


def test_packing_can_be_turned_off_while_labels_are_still_masked_by_starts():
    batch = collate(PACKED, packed_sequences=False)
    assert list(batch) == ["input_ids", "labels"]
    assert batch["labels"].tolist() == collate(PACKED)["labels"].tolist()


def test_a_row_without_starts_among_rows_with_them_is_one_document():
    rows = [PACKED[0], {"input_ids": [7, 2, 8, 2]}, {"input_ids": [9, 2], "document_starts": None}]
    batch = collate(rows)
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 0], [0, 1, 0, 1, 2]]


def test_starts_are_found_from_tokens_if_packed_sequences_is_true():
    rows = [PACKED[0], {"input_ids": [7, 2, 8, 2]}]
    batch = collate(rows, packed_sequences=True)
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 1, 0]]


def test_given_starts_take_precedence_over_tokens():
    row = {"input_ids": [5, 2, 6, 2], "document_starts": [0]}
    assert collate([row], packed_sequences=True)["position_ids"].tolist() == [[0, 1, 2, 3]]


def test_an_eos_with_id_0_is_found_like_any_other():
    tokenizer = SimpleNamespace(eos_token_id=0, bos_token_id=9, pad_token_id=1)
    batch = collate([{"input_ids": [5, 0, 6, 7, 0]}], tokenizer, packed_sequences=True)
    assert batch["position_ids"].tolist() == [[0, 1, 0, 1, 2]]


def test_documents_are_found_by_bos_without_eos_and_it_is_an_error_without_both():
    rows = [{"input_ids": [1, 5, 6, 1, 7]}]
    tokenizer = SimpleNamespace(bos_token_id=1)
    batch = collate(rows, tokenizer, packed_sequences=True)
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    with pytest.raises(InvalidRow, match="no document_starts and the tokenizer has neither EOS"):
        collate(rows, SimpleNamespace(), packed_sequences=True)


def test_the_seq_lengths_of_trl_are_converted_to_starts():
    row = {"input_ids": [5, 6, 2, 7, 2], "seq_lengths": [3, 2]}
    assert collate([row])["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    with pytest.raises(InvalidRow, match=r"row 0: seq_lengths sum to 4, but the row has 5"):
        collate([row | {"seq_lengths": [3, 1]}])
    with pytest.raises(InvalidRow, match=r"row 1: seq_lengths: lengths\[1\] is 0"):
        collate([row, row | {"seq_lengths": [3, 0, 2]}])


# Labels


def test_position_ids_of_another_packer_are_converted_to_starts():
    row = {"input_ids": [5, 6, 2, 7, 2], "position_ids": [0, 1, 2, 0, 1]}
    assert collate([row])["position_ids"].tolist() == [[0, 1, 2, 0, 1]]
    with pytest.raises(InvalidRow, match=r"row 0 has 2 position_ids but 5 input_ids"):
        collate([row | {"position_ids": [0, 1]}])
    with pytest.raises(InvalidRow, match=r"row 0: position_ids\[1\] is 5.*give document_starts"):
        collate([row | {"position_ids": [0, 5, 6, 0, 1]}])


def test_given_labels_of_minus_100_are_not_targets_with_a_custom_ignore_index():
    row = {"input_ids": [5, 6, 7], "labels": [-100, -100, 7], "document_starts": [0]}
    assert collate([row], ignore_index=-1)["labels"].tolist() == [[-1, -1, 7]]


def test_given_labels_are_kept_and_masked_at_boundaries():
    row = {"input_ids": [5, 6, 2, 7, 2], "labels": [5, -100, 2, 7, 2], "document_starts": [0, 3]}
    batch = collate([row, row | {"input_ids": [5, 6, 2, 7, 2]}])
    assert batch["labels"].tolist() == [[-100, -100, 2, -100, 2]] * 2


def test_given_labels_may_differ_from_the_tokens():
    row = {"input_ids": [5, 6, 7], "labels": [15, 16, 17]}
    assert collate([row])["labels"].tolist() == [[-100, 16, 17]]


@pytest.mark.parametrize("name", ["loss_mask", "assistant_masks", "completion_mask"])
def test_only_tokens_selected_by_a_loss_mask_are_targets(name):
    row = {"input_ids": [5, 6, 2, 7, 2], "document_starts": [0, 3], name: [1, 0, 1, 1, 1]}
    short = {"input_ids": [5, 6], name: [0, 1]}
    labels = collate([row, short])["labels"]
    assert labels.tolist() == [[-100, -100, 2, -100, 2], [-100, 6, -100, -100, -100]]


def test_two_loss_masks_must_both_allow_a_token():
    row = {"input_ids": [5, 6, 7, 8], "loss_mask": [1, 1, 1, 0], "completion_mask": [1, 0, 1, 1]}
    assert collate([row])["labels"].tolist() == [[-100, -100, 7, -100]]


def test_boundary_masking_and_training_on_eos_can_be_turned_off():
    assert collate(PACKED, mask_boundary_loss=False)["labels"].tolist() == [
        [5, 6, 2, 7, 2],
        [8, 9, 2, -100, -100],
    ]
    assert collate(PACKED, train_on_eos=False)["labels"].tolist() == [
        [-100, 6, -100, -100, -100],
        [-100, 9, -100, -100, -100],
    ]


# Shapes


def test_padding_to_max_length_and_rows_of_one_length():
    assert collate(PACKED, padding="max_length", max_length=8)["input_ids"].shape == (2, 8)
    assert collate(PACKED, padding=True, max_length=8)["input_ids"].shape == (2, 5)
    same = [PACKED[0], PACKED[0]]
    for padding in (False, "do_not_pad"):
        assert collate(same, padding=padding)["input_ids"].shape == (2, 5)


def test_truncation_cuts_tokens_labels_masks_and_starts():
    row = {
        "input_ids": [5, 6, 2, 7, 8, 2, 9],
        "document_starts": [0, 3, 6],
        "labels": [5, 6, 2, 7, -100, 2, 9],
        "loss_mask": [1, 1, 0, 1, 1, 1, 1],
    }
    batch = collate([row], max_length=6, truncation=True)
    assert batch["input_ids"].tolist() == [[5, 6, 2, 7, 8, 2]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2]]
    assert batch["labels"].tolist() == [[-100, 6, -100, -100, -100, 2]]
    assert row["document_starts"] == [0, 3, 6] and len(row["input_ids"]) == 7
    assert collate([row], max_length=3, truncation=True)["position_ids"].tolist() == [[0, 1, 2]]


def test_documents_padded_inside_the_row_keep_their_labels_and_positions():
    batch = collate(PACKED, pad_documents_to=4, attention="varlen")
    assert batch["input_ids"].tolist() == [[5, 6, 2, 0, 7, 2, 0, 0], [8, 9, 2, 0, 0, 0, 0, 0]]
    assert batch["labels"].tolist() == [
        [-100, 6, 2, -100, -100, 2, -100, -100],
        [-100, 9, 2, -100, -100, -100, -100, -100],
    ]
    assert batch["position_ids"][0].tolist() == [0, 1, 2, 0, 0, 1, 0, 1]
    # Bounds of all segments, padding too: what a kernel without knowledge of padding needs.
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 4, 6, 8, 11, 16]
    # The pair for context-parallel kernels.
    assert batch["cu_seq_lens_q_true"].tolist() == [0, 3, 5, 8]
    assert batch["cu_seq_lens_q_padded"].tolist() == [0, 4, 8, 16]
    assert batch["cu_seq_lens_k_padded"].tolist() == [0, 4, 8, 16]


def test_truncation_with_padded_documents_counts_their_padding():
    batch = collate(PACKED, pad_documents_to=4, max_length=4, truncation=True)
    assert batch["input_ids"].tolist() == [[5, 6, 2, 0], [8, 9, 2, 0]]


# Attention


def test_attention_none_adds_no_keys():
    assert list(collate(PACKED, attention=None)) == ["input_ids", "labels", "position_ids"]


def test_every_form_of_mask_matches_the_segments():
    segments = np.array([[1, 1, 1, 2, 2], [1, 1, 1, 0, 0]])
    assert np.array_equal(collate(PACKED, attention="sdpa")["attention_mask"], bool_mask(segments))
    eager = collate(PACKED, attention="eager", return_tensors="pt")["attention_mask"]
    assert eager.dtype == torch.float32
    assert np.array_equal(eager, float_mask(segments, np.float32))
    batch = collate(PACKED, attention="segments")
    assert np.array_equal(batch["segment_ids"], segments) and batch["segment_ids"].dtype == np.int32
    assert (
        np.array_equal(batch["seq_idx"], seq_idx(segments)) and batch["seq_idx"].dtype == np.int32
    )
    flex = collate(PACKED, attention="flex", return_tensors="pt")["attention_mask"]
    assert isinstance(flex, BlockMask) and flex.shape == (2, 1, 5, 5)


def test_varlen_has_transformers_names_and_bounds_of_the_flattened_batch():
    batch = collate(PACKED, attention="varlen", return_tensors="pt")
    assert list(batch)[3:] == ["cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"]
    assert batch["cu_seq_lens_q"].tolist() == batch["cu_seq_lens_k"].tolist() == [0, 3, 5, 8, 10]
    assert batch["cu_seq_lens_q"].dtype == torch.int32
    assert batch["max_length_q"] == batch["max_length_k"] == 3


def test_masks_of_unpacked_rows_cover_whole_rows():
    rows = [{"input_ids": [5, 2, 6]}, {"input_ids": [7, 2]}]
    expected = [[1, 1, 1], [1, 1, 0]]
    with pytest.warns(UserWarning, match="no row of the batch has document_starts"):
        batch = collate(rows, attention="segments")
    assert "position_ids" not in batch and batch["segment_ids"].tolist() == expected
    starts = [row | {"document_starts": [0, 1]} for row in rows]
    batch = collate(starts, attention="segments", packed_sequences=False)
    assert batch["segment_ids"].tolist() == expected
    assert batch["labels"].tolist() == [[-100, -100, 6], [-100, -100, -100]]


# Properties

documents = st.lists(st.integers(3, 60), min_size=1, max_size=7)
packed_rows = st.lists(st.lists(documents, min_size=1, max_size=5), min_size=1, max_size=4)


@given(packed_rows, st.integers(1, 4), st.sampled_from([0, 2]))
def test_every_document_is_complete_in_its_own_segment(rows, multiple, pad):
    features = []
    for row in rows:
        lengths = [len(document) for document in row]
        features.append(
            {
                "input_ids": [token for document in row for token in document],
                "document_starts": (np.cumsum(lengths) - lengths).tolist(),
            }
        )
    tokenizer = SimpleNamespace(pad_token_id=pad, eos_token_id=2)
    options = {"pad_documents_to": multiple, "return_tensors": "np"}
    batch = DataCollatorForCausalLM(tokenizer, attention="segments", **options)(features)
    for r, row in enumerate(rows):
        for k, document in enumerate(row, 1):
            places = batch["segment_ids"][r] == k
            assert batch["input_ids"][r, places].tolist() == document
            assert batch["position_ids"][r, places].tolist() == list(range(len(document)))
            assert batch["labels"][r, places].tolist() == [-100, *document[1:]]
        padding = batch["segment_ids"][r] == 0
        assert (batch["input_ids"][r, padding] == pad).all()
        assert (batch["labels"][r, padding] == -100).all()
    varlen = DataCollatorForCausalLM(tokenizer, attention="varlen", **options)(features)
    expected = varlen_arguments(batch["segment_ids"])
    assert np.array_equal(varlen["cu_seq_lens_q"], expected["cu_seq_lens_q"])
    assert varlen["max_length_q"] == expected["max_length_q"]


# Refusals


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([0, 3, 2], r"row 1: document_starts\[2\] is 2 after 3"),
        ([0, 3, 3], r"row 1: document_starts\[2\] is 3 after 3"),
        ([0, 5], r"row 1: document_starts\[1\] is 5, but the row has 5 tokens"),
        ([1, 3], "row 1: document_starts begin with 1"),
        ([0.0, 3.0], "row 1: document_starts have dtype float64"),
        ([], "row 1: document_starts are empty"),
        (torch.tensor([0.0]), "row 1: document_starts have dtype float32"),
    ],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"truncation": True, "max_length": 4}, {"pad_documents_to": 2, "max_length": 8}],
)
def test_invalid_starts_are_rejected_with_row_and_value_even_if_truncation_would_cut_them(
    starts, message, options
):
    rows = [PACKED[0], {"input_ids": [5, 6, 2, 7, 2], "document_starts": starts}]
    with pytest.raises(InvalidBoundaries, match=message):
        collate(rows, **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([PACKED[0], {"labels": [1]}], r"row 1 has no input_ids, only \['labels'\]"),
        ([PACKED[0], [5, 6]], "row 1 has no input_ids, only list"),
        ([{1: 2, "a": 3}], r"row 0 has no input_ids, only \['1', 'a'\]"),
        ([{"input_ids": []}], "row 0 has no tokens; leave empty rows out"),
        ([], "a batch is a list of at least one row, not a list of 0"),
        ({"input_ids": [[5, 6]]}, "not a dict of 1; pass a list of dicts"),
        (None, "at least one row, not a NoneType; pass a list of dicts"),
        (iter(PACKED), "at least one row, not a list_iterator; pass a list of dicts"),
        ([{"input_ids": [5, -1]}], r"row 0: input_ids\[1\] is -1, but token ids start at 0"),
        ([{"input_ids": [5.5, 6.5]}], "row 0: input_ids cannot be read as integers"),
        ([{"input_ids": np.array([5.5])}], "row 0: input_ids has dtype float64"),
        ([{"input_ids": [[5, 6]]}], "row 0: input_ids cannot be read as integers"),
        ([{"input_ids": np.array([[5, 6]])}], r"row 0: input_ids has .* shape \(1, 2\)"),
        (
            [{"input_ids": [5, 6], "labels": [5, 6]}, {"input_ids": [5, 6], "labels": [5]}],
            "row 1 has 1 labels but 2 input_ids; give one value per token",
        ),
        (
            [{"input_ids": [5, 6], "labels": [5, 6]}, {"input_ids": [5, 6]}],
            "row 1 has no labels, but row 0 has",
        ),
        ([{"input_ids": [5, 6], "loss_mask": [1]}], "row 0 has 1 loss_mask but 2 input_ids"),
        ([{"input_ids": [5, 6], "loss_mask": [1, 2]}], "values other than 0 and 1"),
        (
            [{"input_ids": [5, 6], "loss_mask": [1, 2], "completion_mask": [1, 1]}],
            "row 0: loss_mask has values other than 0 and 1",
        ),
        (
            [{"input_ids": [5, 6], "loss_mask": [1, 1], "completion_mask": [1, -1]}],
            "row 0: completion_mask has values other than 0 and 1",
        ),
        ([{"input_ids": [5, 6], "attention_mask": [1]}], "row 0 has 1 attention_mask but 2 input"),
        (
            [{"input_ids": [5, 0], "attention_mask": [1, 0]}],
            "row 0 is already padded: its attention_mask has 1 zeros",
        ),
    ],
)
def test_invalid_rows_are_rejected_with_row_and_column(rows, message):
    with pytest.raises(InvalidRow, match=message):
        collate(rows)


def test_an_attention_mask_of_ones_is_left_out():
    rows = [row | {"attention_mask": [1] * len(row["input_ids"])} for row in PACKED]
    assert "attention_mask" not in collate(rows)


def test_rows_longer_than_max_length_are_rejected_without_truncation():
    with pytest.raises(InvalidRow, match="row 0 needs 5 places but max_length is 4; cut rows with"):
        collate(PACKED, max_length=4)
    with pytest.raises(InvalidRow, match="row 0 needs 8 places but max_length is 4"):
        collate(PACKED, max_length=4, pad_documents_to=4)


def test_rows_of_different_lengths_are_rejected_without_padding():
    with pytest.raises(InvalidRow, match="row 1 needs 3 places and row 0 needs 5"):
        collate(PACKED, padding=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "spda"}, "unknown attention 'spda'; did you mean 'sdpa'"),
        ({"padding": "longst"}, "unknown padding 'longst'; did you mean 'longest'"),
        ({"return_tensors": "tf"}, "unknown return_tensors 'tf'; known: np, pt"),
        ({"padding": "max_length"}, "padding='max_length' need max_length, which is None"),
        ({"truncation": True}, "truncation=True .* need max_length"),
        ({"max_length": 0}, "max_length is 0 but must be an integer >= 1"),
        ({"max_length": 8.0}, "max_length is 8.0 but must be"),
        ({"max_length": 10, "pad_documents_to": 4}, "max_length=10 is not a multiple .* use 8"),
        ({"pad_documents_to": 0}, "multiple of 0"),
        ({"pad_documents_to": 2, "packed_sequences": False}, "takes a row as one"),
        ({"attention": "flex", "return_tensors": "np"}, "attention='flex' makes a torch"),
        ({"packed_sequences": "yes"}, "packed_sequences is 'yes' but must be"),
        ({"attention": []}, r"unknown attention \[\]; known"),
        ({"train_on_eos": "no"}, "train_on_eos is 'no' but must be True or False"),
        ({"mask_boundary_loss": "false"}, "mask_boundary_loss is 'false' but must be True or"),
        ({"max_length": True}, "max_length is True but must be an integer >= 1"),
        ({"ignore_index": None}, "ignore_index is None but must be an integer"),
        ({"labels_name": "input_ids"}, "input_name and labels_name are both 'input_ids'"),
    ],
)
def test_invalid_options_are_rejected_when_the_collator_is_made(options, message):
    with pytest.raises(InvalidOption, match=message):
        DataCollatorForCausalLM(TOKENIZER, **({"return_tensors": "pt"} | options))


def test_numpy_integers_are_accepted():
    assert collate(PACKED, max_length=np.int64(6), padding="max_length")["labels"].shape == (2, 6)


def test_train_on_eos_false_requires_a_tokenizer_with_eos():
    with pytest.raises(InvalidOption, match="eos_token_id is not set"):
        DataCollatorForCausalLM(SimpleNamespace(), train_on_eos=False)


def test_an_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="pad_to_multiple"):
        DataCollatorForCausalLM(TOKENIZER, pad_to_multiple=8)


def test_a_numpy_batch_needs_no_torch():
    program = """
import sys
from types import SimpleNamespace
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
row = {"input_ids": [5, 2, 6, 2], "document_starts": [0, 2]}
for attention in ("transformers", "sdpa", "eager", "varlen", "segments"):
    tokenizer = SimpleNamespace(eos_token_id=2)
    DataCollatorForCausalLM(tokenizer, attention=attention, return_tensors="np")([row])
PaddingFreeCollator(return_tensors="np")([row])
print(sorted({"torch", "transformers", "jax"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert result.stdout.strip() == b"[]"
