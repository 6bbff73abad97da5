"""The golden windows of the contract, and what a batch is."""

from __future__ import annotations

import numpy as np
import pytest

from quire.stream import open_stream
from tests.stream.inputs import ListSource, Numbers, config, take

DOCUMENTS = [list(range(10, 15)), list(range(20, 25)), list(range(30, 35))]


def batches(documents=DOCUMENTS, **options):
    options = {"shuffle": False, "repeat": False, "batch_size": 1, **options}
    with open_stream(
        config(**options), source=ListSource([documents]), tokenizer=Numbers()
    ) as stream:
        return take(stream)


def test_the_golden_windows_of_the_sequential_packer():
    first, second, third = batches()
    assert first.input_ids.tolist() == [[[1, 10, 11, 12, 13, 14, 2, 1]]]
    assert first.segment_ids.tolist() == [[[1, 1, 1, 1, 1, 1, 1, 2]]]
    assert first.labels.tolist() == [[[10, 11, 12, 13, 14, 2, -100, 20]]]
    assert second.input_ids.tolist() == [[[21, 22, 23, 24, 2, 1, 30, 31]]]
    assert second.segment_ids.tolist() == [[[1, 1, 1, 1, 1, 2, 2, 2]]]
    assert second.labels.tolist() == [[[22, 23, 24, 2, -100, 30, 31, 32]]]
    assert third.input_ids.tolist() == [[[33, 34, 2, 0, 0, 0, 0, 0]]]
    assert third.attention_mask.tolist() == [[[True] * 3 + [False] * 5]]
    assert third.labels.tolist() == [[[34, 2, -100, -100, -100, -100, -100, -100]]]


def test_the_bin_packer_places_the_longest_first():
    documents = [[10], [20, 21, 22, 23], [30, 31], [40, 41, 42]]
    rows = batches(documents, packing_mode="bin", tokenizer={"add_bos": False, "add_eos": False})
    assert [row.input_ids[0, 0].tolist() for row in rows] == [
        [20, 21, 22, 23, 40, 41, 42, 30],
        [10, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert rows[0].segment_ids[0, 0].tolist() == [1, 1, 1, 1, 2, 2, 2, 3]
    assert rows[0].labels[0, 0].tolist() == [21, 22, 23, -100, 41, 42, -100, 31]


def test_the_bin_packer_splits_long_documents_and_caps_the_documents_of_a_bin():
    documents = [list(range(10, 21)), [30], [40]]
    rows = batches(
        documents,
        packing_mode="bin",
        packing_max_docs_per_bin=2,
        emit_position_ids=True,
        tokenizer={"add_bos": False, "add_eos": False},
    )
    assert [row.input_ids[0, 0].tolist() for row in rows] == [
        [10, 11, 12, 13, 14, 15, 16, 17],
        [19, 20, 30, 0, 0, 0, 0, 0],
        [40, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert rows[0].labels[0, 0, -1] == 18
    assert rows[1].position_ids[0, 0].tolist() == [0, 1, 0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", ["bin", "online"])
def test_a_split_never_leaves_eos_in_a_fragment_of_its_own(mode):
    """BOS, eight tokens and EOS are one more than a window holds."""
    rows = batches([list(range(10, 18))], packing_mode=mode)
    assert [row.input_ids[0, 0].tolist() for row in rows] == [
        [1, 10, 11, 12, 13, 14, 15, 16],
        [17, 2, 0, 0, 0, 0, 0, 0],
    ]
    assert rows[0].labels[0, 0].tolist() == [10, 11, 12, 13, 14, 15, 16, -100]
    assert rows[1].labels[0, 0].tolist() == [2, *[-100] * 7]  # EOS is learnt


@pytest.mark.parametrize("mode", ["bin", "online"])
def test_without_eos_the_last_fragment_may_have_one_token(mode):
    options = {"packing_mode": mode, "tokenizer": {"add_bos": True, "add_eos": False}}
    rows = batches([list(range(10, 19))], **options)
    assert rows[0].labels[0, 0].tolist() == list(range(10, 18))
    assert rows[1].input_ids[0, 0].tolist() == [18, 0, 0, 0, 0, 0, 0, 0]


def test_the_sequential_packer_splits_at_full_windows_even_before_eos():
    rows = batches([list(range(10, 18))])
    assert rows[0].labels[0, 0].tolist() == list(range(10, 18))
    assert rows[1].input_ids[0, 0].tolist() == [2, 0, 0, 0, 0, 0, 0, 0]


def test_without_boundary_masking_every_token_is_a_target():
    labels = [batch.labels[0, 0].tolist() for batch in batches(mask_boundary_loss=False)]
    assert labels[0] == [10, 11, 12, 13, 14, 2, 1, 20]
    assert labels[2] == [34, 2, -100, -100, -100, -100, -100, -100]


def test_without_train_on_eos_no_eos_is_a_target():
    labels = [batch.labels[0, 0].tolist() for batch in batches(train_on_eos=False)]
    assert labels[0] == [10, 11, 12, 13, 14, -100, -100, 20]
    assert not (np.array(labels) == 2).any()


def test_windows_fill_microbatches_row_by_row():
    alone = [batch.input_ids[0, 0].tolist() for batch in batches()]
    (together,) = batches(batch_size=2, grad_accum=2)
    assert together.input_ids.shape == (2, 2, 8)
    assert together.input_ids.reshape(4, 8)[:3].tolist() == alone
    assert not together.attention_mask[1, 1].any()
    assert (together.labels[1, 1] == -100).all()


@pytest.mark.parametrize("mode", ["sequential", "bin", "online"])
def test_types_and_shapes_never_change(mode):
    for batch in batches(batch_size=2, emit_position_ids=True, packing_mode=mode):
        kinds = {name: (array.shape, str(array.dtype)) for name, array in batch.to_dict().items()}
        assert kinds == {
            "input_ids": ((1, 2, 8), "int32"),
            "labels": ((1, 2, 8), "int32"),
            "attention_mask": ((1, 2, 8), "bool"),
            "segment_ids": ((1, 2, 8), "int32"),
            "position_ids": ((1, 2, 8), "int32"),
        }


def test_position_ids_are_emitted_only_when_asked_for():
    assert batches()[0].position_ids is None
    assert batches(emit_position_ids=True)[0].position_ids[0, 0].tolist() == [*range(7), 0]


def test_a_batch_cannot_be_changed_in_its_fields():
    with pytest.raises(AttributeError):
        batches()[0].labels = None


def test_max_doc_tokens_cuts_before_specials_and_counts_the_rest():
    options = config(batch_size=1, shuffle=False, repeat=False, tokenizer={"max_doc_tokens": 2})
    with open_stream(options, source=ListSource([DOCUMENTS]), tokenizer=Numbers()) as stream:
        rows = take(stream)
        ledger = stream.ledger.check()
    assert rows[0].input_ids[0, 0].tolist() == [1, 10, 11, 2, 1, 20, 21, 2]
    assert ledger.tokens.dropped == {"truncated": 9}
    assert ledger.documents.emitted == 3


def test_an_incomplete_last_batch_is_padded_or_dropped_and_counted():
    for prefetch in (0, 2):
        for last_batch, emitted in (("pad", 2), ("drop", 1)):
            options = config(
                shuffle=False, repeat=False, last_batch=last_batch, grain_prefetch=prefetch
            )
            source = ListSource([DOCUMENTS])
            with open_stream(options, source=source, tokenizer=Numbers()) as stream:
                assert len(take(stream)) == emitted
                ledger = stream.ledger.check()
            assert ledger.tokens.input == 15  # and BOS and EOS for each of three documents
            assert ledger.tokens.dropped["drop_last"] == (2 if last_batch == "drop" else 0)
            assert ledger.tokens.special == (5 if last_batch == "drop" else 6)
            assert ledger.tokens.padding == (0 if last_batch == "drop" else 6 + 9)
            assert ledger.documents.pending == 0
