"""Vision-language samples become one flat row, or padded rows, without losing anything."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from quire.collate import (
    MropeOptions,
    VisionCollator,
    VisionPaddedCollator,
    VisionPaddingFreeCollator,
)
from quire.errors import InvalidOption, InvalidRow
from quire.vision import PackedVLDataset

IMAGE, VIDEO = 90, 91
RULES = MropeOptions(image_token_id=IMAGE, video_token_id=VIDEO)


def with_image(*tokens, fill=1.0, **fields):
    """A sample of one 2 × 2 merged image (16 patches of width 3), then text."""
    return {
        "input_ids": [*[IMAGE] * 4, *tokens],
        "pixel_values": np.full((16, 3), fill, dtype=np.float32),
        "image_grid_thw": np.array([[1, 4, 4]]),
        **fields,
    }


def with_video(*tokens, fill=1.0, **fields):
    """A sample of one video: two frames of one merged patch each, then text."""
    return {
        "input_ids": [VIDEO, VIDEO, *tokens],
        "pixel_values_videos": np.full((8, 3), fill, dtype=np.float32),
        "video_grid_thw": np.array([[2, 2, 2]]),
        **fields,
    }


@pytest.fixture
def flat():
    return VisionPaddingFreeCollator(RULES, return_tensors="np")


@pytest.fixture
def padded():
    return VisionPaddedCollator(mrope=RULES, return_tensors="np")


def test_a_pack_becomes_one_flat_row(flat):
    batch = flat([[with_image(5, 6), {"input_ids": [7, 8, 9]}]])
    assert batch["input_ids"].tolist() == [[90, 90, 90, 90, 5, 6, 7, 8, 9]]
    assert batch["labels"].tolist() == [[-100] * 4 + [5, 6, -100, 8, 9]]
    assert batch["position_ids"].shape == (4, 1, 9)
    assert batch["position_ids"][:, 0].tolist() == [
        [0, 1, 2, 3, 4, 5, 0, 1, 2],
        [0, 0, 0, 0, 2, 3, 0, 1, 2],
        [0, 0, 1, 1, 2, 3, 0, 1, 2],
        [0, 1, 0, 1, 2, 3, 0, 1, 2],
    ]
    assert batch["text_position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 0, 1, 2]]
    assert batch["mm_token_type_ids"].tolist() == [[1, 1, 1, 1, 0, 0, 0, 0, 0]]
    assert batch["cu_seq_lens_q"].tolist() == batch["cu_seq_lens_k"].tolist() == [0, 6, 9]
    assert batch["cu_seq_lens_q"].dtype == np.int32
    assert batch["max_length_q"] == batch["max_length_k"] == 6
    assert batch["use_cache"] is False
    assert "attention_mask" not in batch


def test_samples_and_a_pack_of_them_give_the_same_row(flat):
    samples = [with_image(5), {"input_ids": [7, 8]}, with_video(9)]
    forms = [samples, [samples], [tuple(samples)], (samples,)]
    batches = [flat(form) for form in forms]
    for batch in batches[1:]:
        for name, value in batches[0].items():
            np.testing.assert_array_equal(value, batch[name], err_msg=name)


def test_several_packs_become_a_row_each_padded_to_the_longest(flat):
    packs = [[with_image(5, 6), {"input_ids": [7, 8, 9]}], [{"input_ids": [4, 3]}, with_image(2)]]
    batch = flat(packs)
    assert batch["input_ids"].tolist() == [
        [90, 90, 90, 90, 5, 6, 7, 8, 9],
        [4, 3, 90, 90, 90, 90, 2, 0, 0],
    ]
    assert batch["labels"].tolist() == [
        [-100] * 4 + [5, 6, -100, 8, 9],
        [-100, 3, -100, -100, -100, -100, 2, -100, -100],
    ]
    assert batch["position_ids"].shape == (4, 2, 9)
    assert batch["position_ids"][:, 1].tolist() == [
        [0, 1, 0, 1, 2, 3, 4, 0, 1],
        [0, 1, 0, 0, 0, 0, 2, 0, 0],
        [0, 1, 0, 0, 1, 1, 2, 0, 0],
        [0, 1, 0, 1, 0, 1, 2, 0, 0],
    ]
    assert batch["text_position_ids"].tolist() == batch["position_ids"][0].tolist()
    assert batch["mm_token_type_ids"].tolist()[1] == [0, 0, 1, 1, 1, 1, 0, 0, 0]
    # In the flattened batch, padding is a segment of its own.
    assert batch["cu_seq_lens_q"].tolist() == [0, 6, 9, 11, 16, 18]
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4]] * 2


def test_a_loader_that_batches_packs_makes_no_row_longer_than_a_pack(flat):
    samples = [{"input_ids": list(range(n % 40 + 1)), "number": n} for n in range(60)]
    dataset = PackedVLDataset(samples, packing_length=64, packing_drop_last=False)
    loader = DataLoader(dataset, batch_size=4, collate_fn=flat)
    seen = []
    for batch in loader:
        assert batch["input_ids"].shape[0] <= 4
        assert batch["input_ids"].shape[1] <= 64
        seen += batch["number"]
    assert sorted(seen) == list(range(60))


def test_an_empty_pack_among_others_is_rejected(flat):
    with pytest.raises(InvalidRow, match="pack 1 has no samples"):
        flat([[{"input_ids": [1]}], []])


def test_patches_grids_and_seconds_are_in_the_order_of_the_samples(flat):
    samples = [
        with_image(1, fill=1.0) | {"second_per_grid_ts": None},
        with_video(2, fill=2.0, second_per_grid_ts=[0.5]),
        {"input_ids": [3, 4]},
        with_image(5, fill=3.0),
        with_video(6, fill=4.0, second_per_grid_ts=[0.25]),
    ]
    samples[3]["image_grid_thw"] = np.array([[1, 2, 8]])
    batch = flat([samples])
    assert batch["pixel_values"][:, 0].tolist() == [1.0] * 16 + [3.0] * 16
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4], [1, 2, 8]]
    assert batch["pixel_values_videos"][:, 0].tolist() == [2.0] * 8 + [4.0] * 8
    assert batch["video_grid_thw"].tolist() == [[2, 2, 2]] * 2
    assert batch["second_per_grid_ts"].tolist() == [0.5, 0.25]
    assert batch["second_per_grid_ts"].dtype == np.float32


def test_channels_and_unknown_fields_are_kept_per_sample(flat):
    first = {"input_ids": [1, 2], "channel": "charts", "length": 2}
    second = {"input_ids": [3], "channel": "scans", "origin": {"file": 7}}
    batch = flat([[first, second]])
    assert batch["channel"] == ["charts", "scans"]
    assert batch["length"] == [2, None]
    assert batch["origin"] == [None, {"file": 7}]


def test_a_field_with_one_value_per_token_is_concatenated():
    collator = VisionPaddingFreeCollator(token_fields=("loss_scale",), return_tensors="np")
    samples = [{"input_ids": [1, 2], "loss_scale": [0.5, 1.0]}]
    samples += [{"input_ids": [3], "loss_scale": [2.0]}]
    assert collator([samples])["loss_scale"].tolist() == [[0.5, 1.0, 2.0]]
    samples[1]["loss_scale"] = [2.0, 2.0]
    with pytest.raises(InvalidRow, match=r"sample 1 has loss_scale of shape \(2,\) but 1 input"):
        collator([samples])


def test_a_field_of_floats_per_token_is_padded():
    collator = VisionPaddedCollator(token_fields=("loss_scale",), return_tensors="np")
    samples = [{"input_ids": [1, 2], "loss_scale": [0.5, 0.25]}]
    samples += [{"input_ids": [3], "loss_scale": [0.75]}]
    assert collator(samples)["loss_scale"].tolist() == [[0.5, 0.25], [0.75, 0.0]]


@pytest.mark.parametrize(
    "name", ["text_position_ids", "cu_seq_lens_q", "max_length_k", "use_cache", "attention_mask"]
)
def test_no_field_of_a_sample_replaces_what_isolates_samples(name):
    collator = VisionPaddingFreeCollator(attention="sdpa", return_tensors="np")
    good = {"input_ids": [1, 2, 3]}
    expected = collator([[good, good]])[name]
    assert np.array_equal(collator([[good, good | {name: None}]])[name], expected)
    if name != "attention_mask":  # a mask of ones is ignored
        with pytest.raises(InvalidRow, match=f"sample 1 has {name}"):
            collator([[good, good | {name: [1]}]])


def test_position_ids_that_are_none_are_computed(flat):
    batch = flat([[{"input_ids": [1, 2], "position_ids": None}, {"input_ids": [3]}]])
    assert batch["position_ids"][:, 0].tolist() == [[0, 1, 0]] * 4


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_empty_vision_fields_are_accepted_for_samples_without_images(flat, padded, kind):
    text = {"input_ids": [1, 2], "pixel_values": kind([]), "image_grid_thw": kind([])}
    batch = flat([[text, with_image(5), text]])
    assert (len(batch["pixel_values"]), len(batch["image_grid_thw"])) == (16, 1)
    for alone in (flat([[text]]), padded([text])):
        assert not {"pixel_values", "image_grid_thw"} & set(alone)


def test_patches_of_different_widths_are_rejected(flat):
    with pytest.raises(InvalidRow, match="pixel_values of 2 samples do not fit together"):
        flat([[with_image(1), with_image(2, pixel_values=np.ones((16, 4)))]])


def test_tensors_and_arrays_of_patches_are_joined():
    tensor = torch.ones(16, 3, dtype=torch.bfloat16)
    batch = VisionPaddingFreeCollator(RULES)([[with_image(1), with_image(2, pixel_values=tensor)]])
    assert batch["pixel_values"].shape == (32, 3)


def test_a_text_only_pack_has_no_vision_fields(flat):
    batch = flat([[{"input_ids": [1, 2]}, {"input_ids": [3]}]])
    assert not {"pixel_values", "image_grid_thw", "video_grid_thw"} & set(batch)
    assert batch["mm_token_type_ids"].tolist() == [[0, 0, 0]]


def test_given_labels_are_kept_except_the_first_of_a_sample(flat):
    labels = [IMAGE, IMAGE, -100, -100, 5, 6]
    batch = flat([[with_image(5, 6, labels=labels), {"input_ids": [7, 8], "labels": [7, 8]}]])
    assert batch["labels"].tolist() == [[-100, IMAGE, -100, -100, 5, 6, -100, 8]]


def test_without_labels_placeholders_are_not_targets(flat):
    sample = with_image(5)
    sample["input_ids"] = [4, *sample["input_ids"]]
    assert flat([[sample]])["labels"].tolist() == [[-100] * 5 + [5]]


def test_a_loss_mask_and_placeholders_both_remove_targets(flat):
    sample = with_image(5, 6, 7, loss_mask=[1, 1, 1, 1, 1, 0, 1])
    assert flat([[sample]])["labels"].tolist() == [[-100] * 4 + [5, -100, 7]]


def test_the_masked_tail_of_a_truncated_sample_stays_masked(flat):
    sample = {"input_ids": [1, 2, 3, 4], "labels": [1, 2, -100, -100]}
    assert flat([[sample]])["labels"].tolist() == [[-100, 2, -100, -100]]


def test_samples_are_not_changed(flat, padded):
    samples = [with_image(5, labels=[-100] * 4 + [5], channel="a"), with_video(6, labels=[1, 2, 6])]
    before = copy.deepcopy(samples)
    flat([samples])
    padded(samples)
    for sample, copied in zip(samples, before, strict=True):
        assert sample.keys() == copied.keys()
        for name in sample:
            np.testing.assert_array_equal(sample[name], copied[name])


@pytest.mark.parametrize("kind", [np.ndarray.tolist, np.copy, torch.from_numpy])
def test_samples_may_hold_lists_arrays_or_tensors(kind):
    raw = with_image(5, 6, mm_token_type_ids=[1, 1, 1, 1, 0, 0], attention_mask=[1] * 6)
    given = {name: kind(np.asarray(value)) for name, value in raw.items()}
    batch = VisionPaddingFreeCollator(RULES)([[given, with_image(7)]])
    assert batch["pixel_values"].dtype == torch.float32
    assert batch["pixel_values"].shape == (32, 3)
    assert batch["image_grid_thw"].tolist() == [[1, 4, 4]] * 2
    assert batch["input_ids"].dtype == batch["mm_token_type_ids"].dtype == torch.int64


def test_half_precision_patches_keep_their_dtype():
    sample = with_image(5)
    sample["pixel_values"] = torch.ones(16, 3, dtype=torch.bfloat16)
    batch = VisionPaddingFreeCollator(RULES)([[sample, copy.deepcopy(sample)]])
    assert batch["pixel_values"].dtype == torch.bfloat16


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_a_dense_mask_is_added_on_request(backend):
    collator = VisionPaddingFreeCollator(attention=backend)
    mask = collator([[{"input_ids": [1, 2]}, {"input_ids": [3]}]])["attention_mask"]
    visible = mask if backend == "sdpa" else mask == 0
    assert visible[0, 0].tolist() == [
        [True, False, False],
        [True, True, False],
        [False] * 2 + [True],
    ]
    assert mask.dtype == (torch.bool if backend == "sdpa" else torch.float32)


def test_evaluation_is_padded_with_one_sample_in_a_row(padded):
    batch = padded([with_image(5, 6, channel="a"), {"input_ids": [7, 8, 9], "channel": "b"}])
    assert batch["input_ids"].tolist() == [[90, 90, 90, 90, 5, 6], [7, 8, 9, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]
    assert batch["labels"].tolist() == [[-100] * 4 + [5, 6], [-100, 8, 9, -100, -100, -100]]
    assert batch["position_ids"].shape == (3, 2, 6)
    assert batch["position_ids"][:, 1].tolist() == [[0, 1, 2, 0, 0, 0]] * 3
    assert batch["mm_token_type_ids"].tolist() == [[1, 1, 1, 1, 0, 0], [0] * 6]
    assert batch["channel"] == ["a", "b"]
    assert "cu_seq_lens_q" not in batch


def test_padding_uses_the_tokenizers_id_and_is_known_from_lengths():
    class Tokenizer:
        pad_token_id = eos_token_id = 2

    batch = VisionPaddedCollator(Tokenizer())([{"input_ids": [1, 5, 2]}, {"input_ids": [1]}])
    assert batch["input_ids"].tolist() == [[1, 5, 2], [1, 2, 2]]
    assert batch["labels"].tolist() == [[-100, 5, 2], [-100, -100, -100]]


def test_one_collator_concatenates_packs_and_pads_samples(flat, padded):
    collator = VisionCollator(flat, padded)
    samples = [{"input_ids": [1, 2]}, {"input_ids": [3]}]
    assert collator([samples])["input_ids"].shape == (1, 3)
    assert collator(samples)["input_ids"].shape == (2, 2)
    assert collator([[]]) == {}  # replaces a pack that a resumed Trainer discards
    with pytest.raises(InvalidRow, match="row 0 has no input_ids"):
        collator([{}])
    with pytest.raises(InvalidRow, match="feature 1 is a pack and feature 0 is a sample"):
        collator([samples[0], samples])
    with pytest.raises(InvalidRow, match="feature 1 is a pack and feature 0 is a sample"):
        flat([samples[0], samples])


BAD = {
    "no tokens": ({"labels": [1]}, r"row 1 has no input_ids, only \['labels'\]"),
    "empty": ({"input_ids": []}, r"row 1 has no tokens"),
    "two axes": ({"input_ids": [[1, 2]]}, r"row 1: input_ids"),
    "labels of another length (fault 17)": (
        {"input_ids": [1, 2, 3], "labels": [1, 2]},
        r"row 1 has 2 labels but 3 input_ids",
    ),
    "labels in some samples": ({"input_ids": [1]}, r"row 1 has no labels, but row 0 has"),
    "image without placeholders (fault 19)": (
        {"input_ids": [1, 2], "labels": [1, 2]}
        | {name: with_image()[name] for name in ("pixel_values", "image_grid_thw")},
        r"sample 1 has fewer image placeholders .* \(4, found 0\)",
    ),
    "placeholders without image (fault 19)": (
        {"input_ids": [IMAGE, 2], "labels": [1, 2]},
        r"sample 1 has a run of 1 image placeholders, but .* no grid is left",
    ),
    "a cut image span (fault 19)": (
        with_image(labels=[1, 2, 3]) | {"input_ids": [IMAGE] * 3},
        r"sample 1 has a run of 3 image placeholders, but the next image needs 4",
    ),
    "patches without grids": (
        {"input_ids": [1], "labels": [1], "pixel_values": np.ones((16, 3))},
        r"sample 1: pixel_values have 16 patches but image_grid_thw describes 0",
    ),
    "grids of another image": (
        with_image(1, labels=[0] * 5) | {"image_grid_thw": [[1, 4, 2]]},
        r"sample 1: pixel_values have 16 patches but image_grid_thw describes 8",
    ),
    "a flat grid": (
        with_image(1, labels=[0] * 5) | {"image_grid_thw": [1, 4, 4]},
        r"sample 1: image_grid_thw has shape \(3,\)",
    ),
    "a ragged grid": (
        with_image(1, labels=[0] * 5) | {"image_grid_thw": [[1, 4], [1]]},
        r"sample 1: image_grid_thw cannot be read: ",
    ),
    "a grid that cannot be merged": (
        with_image(labels=[0] * 2)
        | {"input_ids": [1, IMAGE], "image_grid_thw": [[1, 3, 2]], "pixel_values": np.ones((6, 3))},
        r"sample 1 has a grid \[1, 3, 2\] whose height and width are not multiples of spatial",
    ),
    "types with a point": (
        {"input_ids": [1, 2], "labels": [1, 2], "mm_token_type_ids": [0.0, 0.7]},
        r"sample 1: mm_token_type_ids have dtype float\d\d but must be integers",
    ),
    "types of another length": (
        with_image(1, labels=[0] * 5, mm_token_type_ids=[1, 1, 1, 1]),
        r"sample 1 has mm_token_type_ids of shape \(4,\) but 5 input_ids",
    ),
    "types that contradict the tokens": (
        with_image(1, labels=[0] * 5, mm_token_type_ids=[1, 1, 1, 0, 0]),
        r"sample 1: mm_token_type_ids\[3\] is 0 but input_ids\[3\] is 90",
    ),
    "an unknown type": (
        {"input_ids": [1, 2], "labels": [1, 2], "mm_token_type_ids": [0, 3]},
        r"sample 1: mm_token_type_ids contain 3",
    ),
    "own positions": (
        {"input_ids": [1, 2], "labels": [1, 2], "position_ids": [0, 1]},
        r"sample 1 has position_ids",
    ),
    "several documents": (
        {"input_ids": [1, 2], "labels": [1, 2], "document_starts": [0, 1]},
        r"sample 1 holds 2 documents according to its document_starts",
    ),
    "several documents as trl says it": (
        {"input_ids": [1, 2], "labels": [1, 2], "seq_lengths": [1, 1]},
        r"sample 1 holds 2 documents according to its seq_lengths",
    ),
    "seconds without videos": (
        {"input_ids": [1], "labels": [1], "second_per_grid_ts": [1.0]},
        r"sample 1 has 1 second_per_grid_ts but 0 videos",
    ),
    "seconds that are not a list": (
        with_video(1, labels=[0] * 3, second_per_grid_ts=1.5),
        r"sample 1: second_per_grid_ts is 1\.5, a single value",
    ),
    "patches that are not a list": (
        {"input_ids": [1], "labels": [1], "pixel_values": 4},
        r"sample 1: pixel_values is 4, a single value",
    ),
    "padding": (
        {"input_ids": [1, 0], "labels": [1, 0], "attention_mask": [1, 0]},
        r"row 1 is already padded",
    ),
    "no dict": ("text", r"sample 1 is a str"),
}


@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD)
def test_a_bad_sample_is_rejected_by_its_index(flat, padded, bad, message):
    good = {"input_ids": [1, 2], "labels": [1, 2]}
    with pytest.raises(InvalidRow, match=message):
        flat([[good, bad] if bad != "text" else [good, "text"]])
    if bad != "text":
        with pytest.raises(InvalidRow, match=message):
            padded([good, bad])


def test_second_per_grid_ts_for_only_some_videos_are_rejected(flat):
    samples = [with_video(1, second_per_grid_ts=[0.5]), {"input_ids": [5]}, with_video(2)]
    with pytest.raises(InvalidRow, match="sample 2 has videos but no second_per_grid_ts, and samp"):
        flat([samples])


def test_placeholders_must_be_known_from_types_or_from_a_config():
    with pytest.raises(InvalidRow, match=r"sample 0 has image_grid_thw but no mm_token_type_ids"):
        VisionPaddingFreeCollator()([[with_image(1)]])


def test_a_batch_is_a_list_and_padding_accepts_only_samples(flat, padded):
    with pytest.raises(InvalidRow, match="not one sample"):
        flat({"input_ids": [1]})
    for wrong in (None, 5):
        with pytest.raises(InvalidRow, match=f"list of samples or packs, not {wrong}"):
            flat(wrong)
    for wrong in (None, "text", 5):
        with pytest.raises(InvalidRow, match=rf"feature 0 is a {type(wrong).__name__}; a feature"):
            VisionCollator(flat, padded)([wrong])
        with pytest.raises(InvalidRow, match=rf"feature 1 is a {type(wrong).__name__}; a feature"):
            flat([{"input_ids": [1]}, wrong])
    with pytest.raises(InvalidRow, match="feature 0 is a list, not a sample"):
        padded([[{"input_ids": [1]}]])
    with pytest.raises(InvalidRow, match="a batch is a list of at least one row"):
        flat([])


def test_unknown_backends_and_formats_are_named():
    with pytest.raises(InvalidOption, match="unknown attention 'sdap'; did you mean 'sdpa'"):
        VisionPaddingFreeCollator(attention="sdap")
    with pytest.raises(InvalidOption, match="unknown return_tensors 'tf'"):
        VisionPaddedCollator(return_tensors="tf")


@pytest.mark.parametrize("kind", [VisionPaddingFreeCollator, VisionPaddedCollator])
def test_an_ignore_index_of_another_type_is_refused_when_the_collator_is_made(kind):
    with pytest.raises(InvalidOption, match="ignore_index is 'none' but must be an integer"):
        kind(ignore_index="none")


def test_packs_of_several_samples_are_placed_in_their_rows(flat):
    """A pack that is shorter than the longest one is followed by padding, not by the next pack."""
    packs = [
        [{"input_ids": [5]}, {"input_ids": [6]}],
        [{"input_ids": [7, 8, 9]}, {"input_ids": [4]}],
    ]
    assert flat(packs)["input_ids"].tolist() == [[5, 6, 0, 0], [7, 8, 9, 4]]
