from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidOption, InvalidRow
from quire.labels import AVERAGINGS, LabelOptions, causal_labels, loss_weights, shift_left

# Literal cases


def test_the_first_token_of_every_fragment_and_padding_are_not_targets():
    labels = causal_labels([[10, 11, 2, 20, 2, 0, 0]], [[1, 1, 1, 2, 2, 0, 0]])
    assert labels.tolist() == [[-100, 11, 2, -100, 2, -100, -100]]


def test_the_window_of_the_streaming_contract_has_its_golden_labels():
    window = np.array([1, 10, 11, 12, 13, 14, 2, 1, 20])
    segments = np.array([1] * 7 + [2] * 2)
    labels = causal_labels(window, segments, shift=True)[:-1]
    assert labels.tolist() == [10, 11, 12, 13, 14, 2, -100, 20]


def test_padding_with_the_eos_id_is_masked_and_the_real_eos_is_learned():
    labels = causal_labels([5, 2, 6, 2, 2, 2], [1, 1, 2, 2, 0, 0])
    assert labels.tolist() == [-100, 2, -100, 2, -100, -100]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("ignore_index", [-100, -1000])
def test_narrow_and_unsigned_tokens_keep_the_ignore_index(dtype, ignore_index):
    tokens = np.array([5, 6, 7], dtype=dtype)
    labels = causal_labels(tokens, [1, 1, 2], LabelOptions(ignore_index=ignore_index))
    assert (labels.dtype, labels.tolist()) == (np.int64, [ignore_index, 6, ignore_index])


def test_rows_of_different_lengths_are_rejected():
    with pytest.raises(InvalidRow, match=r"tokens are not rows of one length.*pad them"):
        causal_labels([[1, 2], [3]], [[1, 1], [1]])


def test_padding_is_never_a_target_whatever_the_flags():
    options = LabelOptions(mask_boundary_loss=False)
    labels = causal_labels([5, 6, 7, 9], [1, 2, 0, 0], options, loss_mask=[1, 1, 1, 1])
    assert labels.tolist() == [5, 6, -100, -100]


def test_eos_is_not_a_target_without_train_on_eos():
    options = LabelOptions(train_on_eos=False, eos_token_id=2)
    assert causal_labels([5, 2, 6, 2], [1, 1, 2, 2], options).tolist() == [-100] * 4
    assert causal_labels([5, 7, 2, 7], [1, 1, 1, 1], options).tolist() == [-100, 7, -100, 7]


def test_only_tokens_of_the_loss_mask_are_learned_and_never_the_first_of_a_fragment():
    labels = causal_labels([5, 6, 7, 8], [1, 1, 2, 2], loss_mask=[0, 1, 1, 1])
    assert labels.tolist() == [-100, 6, -100, 8]
    flags = np.array([True, False, True, True])
    assert causal_labels([5, 6, 7, 8], [1, 1, 2, 2], loss_mask=flags).tolist() == [*[-100] * 3, 8]


def test_existing_labels_keep_their_ignored_positions_and_another_ignore_index_works():
    assert causal_labels([-100, -100, 7, 8], [1, 1, 1, 1]).tolist() == [-100, -100, 7, 8]
    options = LabelOptions(ignore_index=-1)
    assert causal_labels([4, 5, 6], [1, 1, 0], options).tolist() == [-1, 5, -1]


def test_padding_inside_a_row_separates_like_padding_at_its_end():
    labels = causal_labels([5, 6, 0, 7, 8, 0], [1, 1, 0, 2, 2, 0])
    assert labels.tolist() == [-100, 6, -100, -100, 8, -100]


def test_the_weights_of_each_averaging():
    labels = [[-100, 7, 7, 7, 7, -100, 7, -100, 9]]
    segments = [[1, 1, 1, 1, 1, 2, 2, 3, 0]]
    weights = {name: loss_weights(labels, segments, averaging=name)[0] for name in AVERAGINGS}
    assert weights["token"].tolist() == [0, 1, 1, 1, 1, 0, 1, 0, 0]
    assert weights["document"].tolist() == [0, 0.25, 0.25, 0.25, 0.25, 0, 1, 0, 0]
    assert weights["sqrt"].tolist() == [0, 0.5, 0.5, 0.5, 0.5, 0, 1, 0, 0]


@pytest.mark.parametrize("averaging", sorted(AVERAGINGS))
@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (0,)])
def test_empty_rows_have_empty_labels_and_weights(averaging, shape):
    nothing = np.zeros(shape, dtype=np.int64)
    assert causal_labels(nothing, nothing, shift=True).shape == shape
    weights = loss_weights(nothing, nothing, averaging=averaging)
    assert (weights.shape, weights.dtype) == (shape, np.float64)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint64"])
def test_fragments_may_be_numbered_in_any_integer_type(dtype):
    segments = np.array([[1, 200, 200], [1, 1, 0]]).astype(dtype)
    labels = np.array([[7, 7, 7], [7, 7, 7]])
    weights = loss_weights(labels, segments, averaging="document")
    assert weights.tolist() == [[1, 0.5, 0.5], [0.5, 0.5, 0]]
    assert causal_labels(labels, segments).tolist() == [[-100, -100, 7], [-100, 7, -100]]


def test_ignored_labels_weigh_nothing_and_rows_do_not_share_fragments():
    labels = [[[-1, 7], [7, 7]], [[7, -100], [-1, -1]]]
    segments = [[[1, 1], [1, 1]], [[1, 1], [1, 1]]]
    weights = loss_weights(labels, segments, averaging="document", ignore_index=-1)
    assert weights.tolist() == [[[0, 1], [0.5, 0.5]], [[0.5, 0.5], [0, 0]]]


def test_the_callers_arrays_are_not_modified():
    tokens, segments = np.array([5, 6, 7]), np.array([1, 2, 0])
    causal_labels(tokens, segments, shift=True)
    loss_weights(tokens, segments)
    assert tokens.tolist() == [5, 6, 7] and segments.tolist() == [1, 2, 0]


# Properties, against loops that say the rule in the plainest way

fragments = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=6), min_size=1, max_size=5)


@given(fragments, st.integers(0, 4), st.booleans(), st.booleans(), st.data())
def test_labels_equal_the_naive_ones(documents, padding, mask_boundary, train_on_eos, data):
    mask = [data.draw(st.booleans()) for _ in range(sum(map(len, documents)) + padding)]
    expected: list[int] = []
    for document in documents:
        for place, token in enumerate(document):
            kept = mask[len(expected)] and (place > 0 or not mask_boundary)
            expected.append(token if kept and (train_on_eos or token != 2) else -100)
    expected += [-100] * padding
    tokens = [token for document in documents for token in document] + [2] * padding
    numbers = [k for k, document in enumerate(documents, 1) for _ in document] + [0] * padding
    options = LabelOptions(
        mask_boundary_loss=mask_boundary, train_on_eos=train_on_eos, eos_token_id=2
    )
    labels = causal_labels(tokens, numbers, options, loss_mask=mask)
    assert labels.tolist() == expected
    shifted = causal_labels(tokens, numbers, options, loss_mask=mask, shift=True)
    assert shifted.tolist() == [*expected[1:], -100]


@given(st.lists(fragments, min_size=1, max_size=4), st.sampled_from(["document", "sqrt", "token"]))
def test_the_weights_of_a_fragment_depend_only_on_its_own_targets(rows, averaging):
    width = max(sum(map(len, row)) for row in rows)
    labels = np.full((len(rows), width), 7)
    segments = np.zeros((len(rows), width), dtype=np.int32)
    for r, row in enumerate(rows):
        flat = [token for document in row for token in document]
        labels[r, : len(flat)] = [-100 if token == 0 else token for token in flat]
        segments[r, : len(flat)] = [k for k, document in enumerate(row, 1) for _ in document]
    weights = loss_weights(labels, segments, averaging=averaging)
    for r, row in enumerate(rows):
        for k, document in enumerate(row, 1):
            n = sum(token != 0 for token in document)
            own = {"token": 1, "document": Fraction(1, max(n, 1)), "sqrt": max(n, 1) ** -0.5}
            found = weights[r, segments[r] == k]
            assert found.tolist() == [
                pytest.approx(float(own[averaging])) if token else 0 for token in document
            ]
    assert not weights[segments == 0].any()
    alone = [loss_weights(labels[r], segments[r], averaging=averaging) for r in range(len(rows))]
    assert np.array_equal(weights, np.stack(alone))


@given(fragments)
def test_shifted_labels_weigh_the_same_as_unshifted_ones(documents):
    tokens = [token for document in documents for token in document]
    numbers = [k for k, document in enumerate(documents, 1) for _ in document]
    labels = causal_labels(tokens, numbers)
    for averaging in AVERAGINGS:
        moved = shift_left(loss_weights(labels, numbers, averaging=averaging), 0.0)
        shifted = loss_weights(shift_left(labels, -100), numbers, averaging=averaging)
        assert np.array_equal(moved, shifted)


# Refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: causal_labels([1, 2], [1]),
            "segment_ids have shape (1,), but the tokens have (2,); give one value per token",
        ),
        (
            lambda: causal_labels([1.5], [1]),
            "tokens have dtype float64 and shape (1,), but must be rows of integers",
        ),
        (
            lambda: causal_labels([1], [True]),
            "segment_ids have dtype bool and shape (1,), but must be rows of integers",
        ),
        (
            lambda: causal_labels(3, 1),
            "tokens have dtype int64 and shape (), but must be rows of integers",
        ),
        (
            lambda: causal_labels([1, 2], [1, 1], loss_mask=[1]),
            "loss_mask have shape (1,), but the tokens have (2,); give one value per token",
        ),
        (
            lambda: causal_labels([1], [1], loss_mask=[0.5]),
            "loss_mask of dtype float64 has values other than 0 and 1, but says for each token "
            "whether it is learned; pass weights to the loss instead",
        ),
        (
            lambda: causal_labels([1], [1], loss_mask=[2]),
            "loss_mask of dtype int64 has values other than 0 and 1, but says for each token "
            "whether it is learned; pass weights to the loss instead",
        ),
        (
            lambda: loss_weights([[1, 2]], [[1]]),
            "segment_ids have shape (1, 1), but the tokens have (1, 2); give one value per token",
        ),
        (
            lambda: loss_weights([1.5], [1]),
            "labels have dtype float64 and shape (1,), but must be rows of integers",
        ),
        (
            lambda: loss_weights([1], [1.5]),
            "segment_ids have dtype float64 and shape (1,), but must be rows of integers",
        ),
        (
            lambda: loss_weights([[1, 1], [1, 1]], [[1, 0], [1, -1]]),
            "segment_ids contain -1, but fragments have 1 or more and padding 0; number the "
            "fragments of each row from 1",
        ),
    ],
)
def test_arrays_that_disagree_are_rejected(call, message):
    with pytest.raises(InvalidRow) as raised:
        call()
    assert str(raised.value) == message


def test_an_unknown_averaging_is_rejected_with_the_nearest_known_one():
    with pytest.raises(InvalidOption) as raised:
        loss_weights([1], [1], averaging="documents")
    assert str(raised.value) == (
        "unknown averaging 'documents'; did you mean 'document'? known: document, sqrt, token"
    )


def test_train_on_eos_false_needs_an_eos_token_id():
    with pytest.raises(InvalidOption) as raised:
        LabelOptions(train_on_eos=False)
    assert str(raised.value) == (
        "train_on_eos is False but eos_token_id is not set; set it to the token to exclude"
    )


@pytest.mark.parametrize("ignore_index", [None, True, -100.0])
def test_an_ignore_index_that_is_not_an_integer_is_rejected(ignore_index):
    with pytest.raises(InvalidOption) as raised:
        LabelOptions(ignore_index=ignore_index)
    assert str(raised.value) == (f"ignore_index is {ignore_index!r} but must be an integer")


def test_label_flags_must_be_booleans():
    with pytest.raises(InvalidOption, match="mask_boundary_loss"):
        LabelOptions(mask_boundary_loss="no")


def test_labels_need_only_numpy():
    program = (
        "import sys, quire.labels; "
        "print(sorted({'torch', 'transformers', 'datasets', 'jax'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert result.stdout.strip() == b"[]"


def test_a_numpy_integer_is_accepted_as_ignore_index():
    options = LabelOptions(ignore_index=np.int8(-100))
    assert (options.ignore_index, type(options.ignore_index)) == (-100, int)
    for wrong in (True, 1.0, "1", np.bool_(True)):
        with pytest.raises(InvalidOption, match=r"ignore_index is .* but must be an integer"):
            LabelOptions(ignore_index=wrong)
