"""Malformed samples and options raise errors that name them, or are skipped, counted and logged."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from quire.errors import InvalidDocument, InvalidLengths, InvalidOption, SourceError
from quire.vision import PackedVLDataset
from tests.vision.inputs import KINDS, ByNumber, InOrder, numbers, sample, samples

IMAGE = 7
"""The placeholder's token id in these samples."""


def picture(number, placeholders=4, patches=16, **others):
    """A sample with an image of 4 x 4 patches, represented by four placeholders."""
    ids = [1, *[IMAGE] * placeholders, 2]
    return {
        "input_ids": ids,
        "labels": [-100] * len(ids),
        "length": len(ids),
        "number": number,
        "pixel_values": np.zeros((patches, 3)),
        "image_grid_thw": np.array([[1, 4, 4]]),
        **others,
    }


def packed(items, kind=ByNumber, **options):
    options = {"packing_length": 20, "packing_drop_last": False, **options}
    return PackedVLDataset(kind(items), **options)


BAD = {
    "has neither length nor input_ids, only labels": {"labels": [1]},
    "has neither length nor input_ids, only nothing": {},
    "has 3 input_ids and 2 labels": {"input_ids": [1, 2, 3], "labels": [1, 2]},
    "has length 2 but 3 input_ids": {"input_ids": [1, 2, 3], "length": 2},
    "has length 9 but 3 input_ids": {"input_ids": [1, 2, 3], "length": 9},
    "has length 5 but 3 input_ids": {"input_ids": [1, 2, 3], "lengths": [3, 2]},
    "has lengths -1 but must be": {"lengths": [4, -1]},
    "has length -1 but must be": {"length": -1},
    "has length 2.5 but must be": {"length": 2.5},
    "has length True but must be": {"length": True},
    "has length 9223372036854775808 but must be": {"length": 2**63},
    "has length '3' but must be": {"length": "3"},
    "has input_ids 5 but must be a list": {"input_ids": 5},
    "has labels 4 but must be a list": {"input_ids": [1, 2, 3], "labels": 4},
    r"has input_ids of shape \(1, 4\)": {"input_ids": [[1, 2, 3, 4]]},
    "has image_grid_thw that cannot be read": {"length": 2, "image_grid_thw": [[1, 2], [1, 2, 2]]},
    r"has image_grid_thw of shape \(\)": {"length": 2, "image_grid_thw": 4},
    "has image_grid_thw with -1 but": {"length": 2, "image_grid_thw": [[-1, 2, 2]]},
    "has image_grid_thw of .* patches, more than is possible": {
        "length": 2,
        "image_grid_thw": [[2**40, 2**40, 2]],
    },
    "has pixel_values 4 but must be a list": {"length": 2, "pixel_values": 4},
    "has mm_token_type_ids that cannot be read": {
        "length": 2,
        "mm_token_type_ids": [[0], [1, 2]],
    },
    "is list but must map names": [1, 2],
    "is NoneType but must map names": None,
    r"has input_ids of shape \(1, 3\)": {"input_ids": np.zeros((1, 3))},
    "has 15 rows of pixel_values but 16 patches": picture(0, patches=15),
    "has 3 image placeholders in input_ids but its images need 4": picture(0, placeholders=3),
    "has 4 image placeholders in input_ids but its images need 0": {
        "input_ids": [IMAGE] * 4,
        "length": 4,
    },
    r"has image_grid_thw of shape \(3,\)": picture(0, image_grid_thw=np.array([1, 4, 4])),
}


@pytest.mark.parametrize("problem", list(BAD))
def test_a_malformed_sample_is_an_error_that_names_it(problem):
    dataset = packed([sample(0, 5), BAD[problem]], image_token_id=IMAGE)
    with pytest.raises(InvalidDocument, match=f"sample 1 {problem}.*max_bad_records"):
        list(dataset)


@pytest.mark.parametrize("problem", list(BAD))
def test_a_malformed_sample_within_the_budget_is_counted_logged_and_skipped(problem, caplog):
    items = [sample(0, 5), BAD[problem], sample(2, 6)]
    dataset = packed(items, image_token_id=IMAGE, max_bad_records=1)
    with caplog.at_level(logging.WARNING, "quire.vision"):
        assert numbers(dataset) == [[0, 2]]
    assert dataset.telemetry().ledger.documents.dropped == {"bad_record": 1}
    assert [record.message for record in caplog.records if "skipped sample 1" in record.message]


@pytest.mark.parametrize("length", [2, 9])
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_length_that_differs_from_the_number_of_tokens_is_quarantined(kind, length):
    items = [sample(0, 5), sample(1, 6) | {"length": length}, sample(2, 4)]
    with pytest.raises(InvalidDocument, match=f"sample 1 has length {length} but 6 input_ids"):
        list(packed(items, KINDS[kind]))
    dataset = packed(items, KINDS[kind], max_bad_records=1)
    assert numbers(dataset) == [[0, 2]]
    assert dataset.telemetry().ledger.tokens.dropped == {"bad_record": length}


def test_a_measure_may_count_tokens_that_the_model_adds():
    items = [sample(number, 5) | {"length": 11} for number in range(2)]
    dataset = packed(items, measure=lambda item: {"tokens": item["length"]})
    assert numbers(dataset) == [[0], [1]]
    images_only = packed(items, measure=lambda item: {"images": 0}, packing_max_images=1)
    with pytest.raises(InvalidDocument, match="has length 11 but 5 input_ids"):
        list(images_only)


def test_one_bad_sample_more_than_the_budget_is_an_error():
    dataset = packed([{}, {}, sample(2, 5)], max_bad_records=1)
    with pytest.raises(InvalidDocument, match=r"sample 1 .*after 1 bad samples were skipped"):
        list(dataset)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_number_of_images_that_differs_from_the_placeholders_is_quarantined(kind):
    """Fault 19: an error by default, counted within the budget; its pack has the others."""
    items = [picture(0), picture(1, placeholders=3), picture(2)]
    with pytest.raises(InvalidDocument, match="sample 1 has 3 image placeholders"):
        list(packed(items, KINDS[kind], image_token_id=IMAGE))
    dataset = packed(items, KINDS[kind], image_token_id=IMAGE, max_bad_records=1)
    assert numbers(dataset) == [[0, 2]]
    ledger = dataset.telemetry().ledger
    assert ledger.documents.dropped == {"bad_record": 1}
    assert ledger.tokens.dropped == {"bad_record": 5}


def test_an_image_span_is_never_cut():
    """Fault 19: a sample is delivered whole, with all its pixels, even if it is very long."""
    sizes = {"placeholders": lambda k: 4 * k, "patches": lambda k: 16 * k}
    items = [
        picture(n, image_grid_thw=[[k, 4, 4]], **{name: size(k) for name, size in sizes.items()})
        for n, k in enumerate((1, 9, 2, 5))
    ]
    packs = list(packed(items, image_token_id=IMAGE, packing_max_images=1))
    assert sorted(item["number"] for pack in packs for item in pack) == [0, 1, 2, 3]
    for item in (item for pack in packs for item in pack):
        assert len(item["pixel_values"]) == 4 * item["input_ids"].count(IMAGE)


def test_placeholders_are_counted_from_token_types_if_no_id_is_given():
    good = picture(0, mm_token_type_ids=[0, 1, 1, 1, 1, 0])
    bad = picture(1, mm_token_type_ids=[0, 1, 1, 1, 0, 0])
    assert numbers(packed([good])) == [[0]]
    with pytest.raises(InvalidDocument, match="3 image placeholders"):
        list(packed([bad]))


def test_videos_are_compared_with_their_own_placeholders():
    video = {"input_ids": [9, 9], "pixel_values_videos": [[0.0]] * 8, "video_grid_thw": [[2, 2, 2]]}
    assert len(list(packed([video], video_token_id=9))) == 1
    with pytest.raises(InvalidDocument, match=r"0 video placeholders in input_ids .* need 2"):
        list(packed([video], video_token_id=8))


def test_the_placeholder_id_comes_from_the_template_or_its_processor():
    class Processor:
        image_token_id = IMAGE

    class Template:
        max_length = 20
        processor = Processor()

    with pytest.raises(InvalidDocument, match="3 image placeholders"):
        list(PackedVLDataset(ByNumber([picture(0, placeholders=3)]), template=Template()))


def test_a_planned_pack_that_loses_its_only_sample_is_an_error():
    items = [picture(0, placeholders=3)]
    dataset = packed(items, list, image_token_id=IMAGE, max_bad_records=5)
    assert len(dataset) == 1
    with pytest.raises(InvalidDocument, match="the number of packs must be as planned"):
        list(dataset)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"packing_length": 0}, "packing_length is 0"),
        ({"packing_length": -3}, "packing_length is -3"),
        ({"packing_length": None}, "set packing_length or global_max_length"),
        ({"packing_min_fill_ratio": 0}, "packing_min_fill_ratio is 0 "),
        ({"packing_buffer": 0}, "packing_buffer is 0"),
        ({"packing_lenght": 5}, "unknown option 'packing_lenght'; did you mean 'packing_length'"),
        ({"packing_max_images": -1}, "packing_max_images is -1"),
        ({"image_token_id": -1}, "image_token_id is -1"),
        ({"lengths": {"tokens": [1], "tiles": [1]}}, "unknown key of lengths 'tiles'"),
    ],
)
def test_options_out_of_range_or_unknown_are_errors(options, message):
    with pytest.raises(InvalidOption, match=message):
        len(packed(samples([1]), list, **options))


def test_the_huge_max_length_of_a_tokenizer_without_a_limit_is_rejected():
    endless = int(1e30)
    message = "is 1000000000000000019884624838656 but can be at most .*; set packing_length"
    for given in (
        {"template": SimpleNamespace(max_length=endless)},
        {"packing_length": endless},
        {"global_max_length": endless},
    ):
        with pytest.raises(InvalidOption, match=message):
            PackedVLDataset(samples([3]), **given)


def test_invalid_lengths_are_errors():
    for lengths, message in (
        ({"tokens": [-1], "images": [0]}, "document 0 has length -1"),
        ({"tokens": [1.5], "images": [0]}, "but a length is an integer"),
        ({"tokens": [1], "images": [1, 2]}, "have different numbers of samples"),
    ):
        with pytest.raises(InvalidLengths, match=message):
            list(packed(samples([1]), lengths=lengths, packing_max_images=3))


def test_datasets_that_cannot_be_read_twice_or_at_all_are_rejected():
    with pytest.raises(InvalidOption, match="list_iterator, which can be read only once"):
        PackedVLDataset(iter([]), packing_length=8)
    with pytest.raises(InvalidOption, match="dataset is int but must have"):
        PackedVLDataset(7, packing_length=8)
    with pytest.raises(InvalidOption, match="dataset is a dict of 'train', not a list of samples"):
        PackedVLDataset({"train": []}, packing_length=8)


@pytest.mark.parametrize("value", [4, [[1], [2, 3]]])
def test_malformed_images_are_skipped_if_images_are_limited(value):
    for name in ("pixel_values", "image_grid_thw"):
        items = [sample(0, 3), sample(1, 3, **{name: value}), sample(2, 3)]
        budgets = {"packing_max_images": 4, "packing_max_patches": 4}
        dataset = packed(items, max_bad_records=1, **budgets)
        if name == "pixel_values" and isinstance(value, list):
            continue  # two rows, whose width is not checked
        assert numbers(dataset) == [[0, 2]]


def test_a_measure_that_does_not_return_counts_is_an_error():
    for measured in ({"tiles": 3}, 7, {"images": -1}, {"images": 1.5}):
        with pytest.raises(InvalidOption, match="measure"):
            list(packed(samples([3]), measure=lambda _, got=measured: got, packing_max_images=3))


def test_warnings_about_skipped_samples_stop_but_all_are_counted(caplog):
    dataset = packed(samples([30] * 100), InOrder, packing_allow_single_long=False)
    with caplog.at_level(logging.WARNING, "quire.vision"):
        assert list(dataset) == []
    assert len(caplog.messages) == 21
    assert dataset.telemetry().num_skipped == 100


@pytest.mark.parametrize("lengths", [None, [5] * 6])
def test_a_stop_iteration_inside_the_dataset_does_not_end_the_epoch_silently(lengths):
    class Dry:
        def __len__(self):
            return 6

        def __getitem__(self, position):
            raise StopIteration

    packed = PackedVLDataset(Dry(), lengths=lengths, packing_length=20)
    with pytest.raises(SourceError, match=r"__getitem__\(\d\) of the dataset raised StopIteration"):
        list(packed)
