"""`PackedVLDataset`: packs of unchanged samples, each once, from every kind of dataset."""

from __future__ import annotations

import subprocess
import sys

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidLengths, InvalidOption
from quire.vision import PackedVLDataset, VisionPackingOptions
from tests.vision.inputs import (
    KINDS,
    ByNumber,
    InOrder,
    Reordered,
    naive_packs,
    numbers,
    sample,
    samples,
)

GOLDEN = [30, 30, 20, 60, 50, 10]


@pytest.fixture(params=list(KINDS))
def kind(request):
    return KINDS[request.param]


def packed(dataset, **options):
    return PackedVLDataset(dataset, **{"packing_length": 80, **options})


def test_the_golden_samples_give_two_packs_and_the_rest_is_dropped(kind):
    dataset = packed(kind(samples(GOLDEN)), packing_min_fill_ratio=0.6)
    assert numbers(dataset) == [[0, 4], [2, 3]]
    ledger = dataset.telemetry().ledger
    assert ledger.documents.dropped == {"drop_last": 2}
    assert ledger.tokens.dropped == {"drop_last": 40}


def test_without_drop_last_the_rest_is_emitted(kind):
    dataset = packed(kind(samples(GOLDEN)), packing_drop_last=False)
    assert numbers(dataset) == [[0, 4], [1, 5], [2, 3]]


def test_samples_are_the_same_objects_and_unchanged(kind):
    items = samples(GOLDEN)
    before = [dict(item) for item in items]
    packs = list(packed(kind(items), packing_drop_last=False))
    assert all(isinstance(pack, list) for pack in packs)
    assert {id(item) for pack in packs for item in pack} == {id(item) for item in items}
    assert items == before


def test_an_epoch_can_be_iterated_again(kind):
    dataset = packed(kind(samples(GOLDEN * 5)), packing_buffer=7)
    assert list(dataset) == list(dataset) != []


def test_an_abandoned_iteration_starts_over(kind):
    dataset = packed(kind(samples(GOLDEN * 5)), packing_buffer=7)
    whole = numbers(dataset)
    next(iter(dataset))
    assert numbers(dataset) == whole


def test_an_empty_dataset_has_no_packs(kind):
    assert list(packed(kind([]))) == []


def test_an_oversized_sample_does_not_discard_or_overtake_buffered_ones(kind):
    dataset = packed(kind(samples([40, 90, 40, 80, 20])), packing_drop_last=False)
    assert numbers(dataset) == [[0, 2], [1], [3], [4]]


def test_a_sample_that_is_exactly_a_pack_long_is_oversized(kind):
    dataset = packed(kind(samples([80, 79])), packing_allow_single_long=False)
    assert numbers(dataset) == [[1]]
    assert dataset.telemetry().num_skipped == 1


def test_samples_without_tokens_are_dropped_and_counted(kind):
    dataset = packed(kind(samples([40, 0, 40])))
    assert numbers(dataset) == [[0, 2]]
    assert dataset.telemetry().ledger.documents.dropped == {"empty": 1}


def test_the_length_is_the_number_of_input_ids_if_no_other_is_given():
    items = [{"input_ids": [1] * n, "number": n} for n in (50, 30)]
    assert numbers(packed(ByNumber(items))) == [[50, 30]]


def test_lengths_may_be_numpy_or_torch_integers():
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    items = [sample(0, 50), sample(1, 30)]
    items[0]["length"] = numpy.int64(50)
    items[1]["length"] = torch.tensor(30)
    items[1]["input_ids"] = torch.arange(30)
    items[1]["labels"] = torch.arange(30)
    assert numbers(packed(items)) == numbers(packed(ByNumber(items))) == [[0, 1]]


@pytest.mark.parametrize("drop_last", [True, False])
@settings(max_examples=80, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 100), max_size=120),
    buffer=st.integers(1, 30),
    ratio=st.floats(0.05, 1.0),
)
def test_packs_equal_those_of_a_naive_packer_with_known_and_unknown_lengths(
    drop_last, lengths, buffer, ratio
):
    expected, dropped = naive_packs(lengths, 80, buffer, ratio, drop_last)
    for make in KINDS.values():
        dataset = packed(
            make(samples(lengths)),
            packing_buffer=buffer,
            packing_min_fill_ratio=ratio,
            packing_drop_last=drop_last,
        )
        assert numbers(dataset) == expected
        ledger = dataset.telemetry().ledger
        assert ledger.documents.dropped["drop_last"] == len(dropped)
        assert ledger.documents.input == len(lengths)
        assert ledger.documents.pending == 0


def test_the_ledger_balances_after_every_pack(kind):
    lengths = [(37 * n) % 90 + 1 for n in range(60)]
    dataset = packed(kind(samples(lengths)), packing_buffer=9)
    emitted = 0
    for pack in dataset:
        emitted += len(pack)
        ledger = dataset.telemetry().ledger.check()
        assert ledger.documents.emitted == emitted
    assert ledger.documents.input == 60
    assert ledger.tokens.input == sum(lengths)


def test_the_buffer_of_samples_of_unknown_length_is_not_larger_than_configured():
    source = ByNumber(samples([45] * 100))  # no two fit together, so every group is underfilled
    dataset = packed(source, packing_buffer=8, packing_min_fill_ratio=1.0)
    delivered = 0
    for pack in dataset:
        delivered += len(pack)
        assert len(source.reads) - delivered <= 8 + 2  # at least one new one per round


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 100), max_size=150),
    buffer=st.integers(1, 20),
    ratio=st.floats(0.05, 1.0),
)
def test_no_sample_waits_longer_than_three_buffers(lengths, buffer, ratio):
    source = ByNumber(samples(lengths))
    dataset = packed(
        source, packing_buffer=buffer, packing_min_fill_ratio=ratio, packing_drop_last=False
    )
    for pack in dataset:
        for item in pack:
            assert len(source.reads) - item["number"] <= 3 * buffer


def test_with_known_lengths_no_sample_is_read_before_its_pack():
    source = ByNumber(samples([40] * 100))
    dataset = packed(source, lengths=[40] * 100)
    first = next(iter(dataset))
    assert source.reads == [item["number"] for item in first]


def test_len_is_exact_if_lengths_are_known():
    lengths = [(37 * n) % 90 + 1 for n in range(100)]
    for dataset in (packed(samples(lengths)), packed(InOrder(samples(lengths)), lengths=lengths)):
        assert len(dataset) == len(list(dataset)) == dataset.length_hint()


def test_a_column_of_lengths_is_used():
    datasets = pytest.importorskip("datasets")
    lengths = [(37 * n) % 90 + 1 for n in range(100)]
    table = datasets.Dataset.from_list(samples(lengths))
    dataset = packed(table, packing_buffer=9)
    assert len(dataset) == len(numbers(dataset))
    assert numbers(dataset) == numbers(packed(samples(lengths), packing_buffer=9))


def test_without_lengths_there_is_a_length_hint_but_no_len():
    dataset = packed(ByNumber(samples([40] * 100)), packing_buffer=10)
    with pytest.raises(TypeError, match=r"give lengths=.*or call length_hint"):
        len(dataset)
    assert dataset.length_hint() is None
    packs = iter(dataset)
    next(packs)
    assert dataset.length_hint() == 50
    assert packed(InOrder(samples([40]))).length_hint() is None


def test_a_number_of_lengths_that_differs_from_the_samples_is_rejected():
    with pytest.raises(InvalidLengths, match="there are 2 lengths but 3 samples"):
        list(packed(ByNumber(samples([1, 2, 3])), lengths=[1, 2]))
    with pytest.raises(InvalidLengths, match="ends before sample 2 but there are 3 lengths"):
        list(packed(InOrder(samples([50, 50])), lengths=[50, 50, 30], packing_drop_last=False))
    with pytest.raises(InvalidLengths, match="are 2 lengths but the dataset has more samples"):
        list(packed(InOrder(samples([50, 50, 30])), lengths=[50, 50]))


def test_a_wrong_length_is_an_error_and_never_an_overfull_pack():
    dataset = packed(ByNumber(samples([30, 70])), lengths=[30, 40])
    with pytest.raises(InvalidLengths, match=r"sample 1 measures \[70\].*planned with \[40\]"):
        list(dataset)


def test_set_epoch_reaches_the_dataset_first_and_then_packs_its_new_order():
    inner = Reordered(samples([(37 * n) % 70 + 5 for n in range(40)]))
    dataset = packed(inner, packing_buffer=9)
    epochs = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        epochs.append(numbers(dataset))
    assert inner.epochs == [0, 1, 0]
    assert epochs[0] == epochs[2] != epochs[1]


def test_set_epoch_in_the_middle_discards_the_old_order():
    inner = Reordered(samples([(37 * n) % 70 + 5 for n in range(40)]))
    dataset = packed(inner, packing_buffer=9)
    dataset.set_epoch(1)
    whole = numbers(dataset)
    dataset.set_epoch(0)
    next(iter(dataset))
    dataset.set_epoch(1)
    assert numbers(dataset) == whole
    assert dataset.telemetry().ledger.documents.input == 40


def test_images_patches_and_samples_can_be_limited():
    grid = [[1, 4, 4]]
    items = [sample(n, 5, image_grid_thw=grid, pixel_values=[[0.0]] * 16) for n in range(12)]
    for options, most in (
        ({"packing_max_images": 3}, 3),
        ({"packing_max_patches": 40}, 2),
        ({"packing_max_documents": 5}, 5),
        ({"packing_max_images": 4, "packing_max_documents": 3}, 3),
    ):
        for make in KINDS.values():
            dataset = packed(make(items), packing_drop_last=False, **options)
            packs = numbers(dataset)
            assert max(map(len, packs)) == most
            assert sorted(n for pack in packs for n in pack) == list(range(12))


def test_a_callable_measures_what_samples_do_not_contain():
    items = samples([10] * 8)
    dataset = packed(
        ByNumber(items), packing_max_images=2, measure=lambda item: {"images": item["number"] % 2}
    )
    for pack in dataset:
        assert sum(item["number"] % 2 for item in pack) <= 2


def test_lengths_by_name_plan_several_limits():
    items = samples([10] * 8)
    dataset = packed(
        ByNumber(items),
        packing_max_images=2,
        measure=lambda item: {"images": 1},
        lengths={"tokens": [10] * 8, "images": [1] * 8},
    )
    assert len(dataset) == 4 == len(list(dataset))


def test_a_limit_whose_sizes_are_missing_from_lengths_is_an_error():
    with pytest.raises(InvalidOption, match="lengths has no 'images' but packing_max_images"):
        list(packed(samples([10]), packing_max_images=2, lengths=[10]))


def test_lengths_that_list_the_parts_of_a_sample_are_summed():
    """ms-swift's column ``lengths`` holds a list per sample."""
    parts = [[4, 6], [10], [3, 3, 4], [10]]
    rows = [{"input_ids": [1] * 10, "lengths": lengths} for lengths in parts]
    table = datasets.Dataset.from_list(rows)
    for dataset in (
        packed(rows, packing_length=25),
        packed(table, packing_length=25),
        packed(ByNumber([{"input_ids": [1] * 10}] * 4), packing_length=25, lengths=parts),
        packed(ByNumber(rows), packing_length=25, lengths=[10, [10], (4, 6), 10]),
        packed(ByNumber(rows), packing_length=25, lengths=table["lengths"]),
    ):
        assert len(dataset) == 2
        assert [len(pack) for pack in dataset] == [2, 2]


def test_a_column_of_lengths_is_not_enough_if_images_are_limited():
    table = datasets.Dataset.from_list([{"input_ids": [1, 2], "length": 2}] * 4)
    assert len(packed(table, packing_drop_last=False)) == 1
    with pytest.raises(TypeError, match=r"give lengths=\{'tokens': \.\.\., 'images': \.\.\.\}, or"):
        len(packed(table, packing_max_images=2))


def test_from_options_equals_keywords():
    options = VisionPackingOptions(packing_length=80, packing_buffer=9, seed=7)
    items = samples([(37 * n) % 90 + 1 for n in range(60)])
    dataset = PackedVLDataset.from_options(ByNumber(items), options)
    assert numbers(dataset) == numbers(packed(ByNumber(items), packing_buffer=9))


def test_importing_vision_imports_no_torch():
    code = (
        "import sys, quire.vision as vision\n"
        "vision.calculate_matched_group, vision.FusionDataset\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_packing_needs_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from quire.vision import PackedVLDataset as P\n"
        "print([len(pack) for pack in P([{'length': 4}] * 6, packing_length=9)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[2, 2, 2]"
