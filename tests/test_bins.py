"""`Document` and `Bin` for custom packers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.blocks import (
    Bin,
    BlockOptions,
    Document,
    pack_sequences_optimized,
    pack_texts,
    split_document_optimally,
)
from quire.errors import InvalidOption, OversizedDocument
from tests.text.literal_tokenizer import LiteralTokenizer, text_of
from tests.text.row_rules import document_ids


def document(ids, index: int = 0) -> Document:
    return Document(list(ids), len(ids), index)


def pack(lists, max_length=10, min_len=1, stride=0, overflow=True, **options):
    documents = [document(ids, index) for index, ids in enumerate(lists)]
    return pack_sequences_optimized(documents, max_length, min_len, stride, overflow, **options)


# Bins


def test_a_bin_holds_whole_documents_and_beginnings_of_documents():
    row = Bin(max_length=8)
    row.add_document(document([5, 6, 7], 4))
    row.add_document(document([8, 9], 2), tokens_to_add=1)
    assert row.documents == [(4, 3), (2, 1)]
    assert row.get_ids() == [5, 6, 7, 8]
    assert row.get_document_starts() == [0, 3]
    assert row.remaining() == 4
    assert row.can_fit(4) and not row.can_fit(5)


def test_documents_of_50_30_and_20_tokens_start_at_0_50_and_80():
    row = Bin(max_length=100)
    for index, length in enumerate((50, 30, 20)):
        row.add_document(document(range(length), index))
    assert row.documents == [(0, 50), (1, 30), (2, 20)]
    assert row.get_document_starts() == [0, 50, 80]
    assert row.remaining() == 0


def test_an_empty_bin_has_no_starts():
    row = Bin(5)
    assert (row.get_ids(), row.get_document_starts(), row.remaining()) == ([], [], 5)


def test_a_bin_returns_copies():
    row = Bin(5)
    row.add_document(document([5, 6]))
    row.get_ids().append(7)
    assert row.get_ids() == [5, 6]
    assert Bin(5).documents == [] and Bin(5).get_ids() == [], "bins share nothing"


def test_a_document_that_does_not_fit_is_refused_and_the_bin_stays_as_it_was():
    row = Bin(4)
    row.add_document(document([5, 6, 7]))
    with pytest.raises(OversizedDocument, match="document 9 needs 2 places but the bin has 1 of 4"):
        row.add_document(document([8, 9], 9))
    row.add_document(document([8, 9], 9), tokens_to_add=1)
    assert row.get_ids() == [5, 6, 7, 8]


@pytest.mark.parametrize("count", [0, -1, 3])
def test_an_added_part_has_at_least_one_token_and_at_most_all(count):
    with pytest.raises(InvalidOption, match=f"tokens_to_add is {count} but document 0 has 2 tok"):
        Bin(8).add_document(document([8, 9]), tokens_to_add=count)


def test_a_bin_has_a_positive_max_length():
    with pytest.raises(InvalidOption, match="max_length is 0 but must be an integer >= 1"):
        Bin(0)


def test_a_documents_length_is_that_of_its_tokens():
    with pytest.raises(InvalidOption, match="document 3 has 2 input_ids but its length is 5"):
        Document([8, 9], 5, 3)


def test_the_names_of_the_guide_are_at_the_top():
    assert quire.Document is Document and quire.Bin is Bin


# Splitting


def test_a_document_of_12_tokens_is_split_into_5_5_and_2():
    pieces = split_document_optimally(document(range(12), 7), max_length=5)
    assert [list(piece.input_ids) for piece in pieces] == [
        [*range(5)],
        [*range(5, 10)],
        [10, 11],
    ]
    assert [(piece.length, piece.original_index) for piece in pieces] == [(5, 7), (5, 7), (2, 7)]


def test_an_overlap_of_2_makes_no_fragment_of_only_overlap():
    pieces = split_document_optimally(document(range(8)), max_length=5, stride=2)
    assert [list(piece.input_ids) for piece in pieces] == [[*range(5)], [*range(3, 8)]]


def test_every_fragment_opens_with_bos_and_none_with_two():
    for ids in ([10, 11, 12, 13, 14], [1, 10, 11, 12, 13, 14]):
        pieces = split_document_optimally(document(ids), max_length=4, bos_token_id=1)
        assert [list(piece.input_ids) for piece in pieces] == [[1, 10, 11, 12], [1, 13, 14]]


def test_a_document_that_fits_is_one_fragment_and_an_empty_one_has_none():
    pieces = split_document_optimally(document([5, 6]), max_length=5)
    assert [list(piece.input_ids) for piece in pieces] == [[5, 6]]
    assert split_document_optimally(document([]), max_length=5) == []
    assert split_document_optimally(document([1]), max_length=5, bos_token_id=1) == []


@pytest.mark.parametrize(("max_length", "stride", "bos"), [(5, 5, None), (5, 4, 1), (1, 0, 1)])
def test_no_room_for_a_new_token_is_a_value_error_and_nothing_hangs(max_length, stride, bos):
    with pytest.raises(ValueError, match="no room"):
        split_document_optimally(document(range(9)), max_length, stride, bos)


# Packing


def test_best_fit_is_the_default_and_keeps_equal_lengths_in_input_order():
    rows, starts = pack([[10, 11, 12], [20, 21], [30, 31, 32]])
    assert rows == [[10, 11, 12, 30, 31, 32, 20, 21]]
    assert starts == [[0, 3, 6]]


def test_documents_are_truncated_and_short_rows_dropped():
    rows, starts = pack([range(10, 22), [30]], max_length=5, min_len=2, overflow=False)
    assert rows == [[10, 11, 12, 13, 14]] and starts == [[0]]


def test_the_order_of_shuffled_rows_depends_only_on_the_seed():
    lists = [range(10 * n, 10 * n + 6) for n in range(1, 40)]
    plain, shuffled = pack(lists)[0], pack(lists, shuffle_output=True)[0]
    assert plain != shuffled and sorted(plain) == sorted(shuffled)
    assert pack(lists, shuffle_output=True, seed=42)[0] == shuffled
    assert pack(lists, shuffle_output=True, seed=1)[0] != shuffled
    assert pack(lists, shuffle_output=True, seed=None)[0] != shuffled


def test_an_unknown_strategy_is_an_error_with_the_nearest_name():
    with pytest.raises(InvalidOption, match="did you mean 'first_fit'"):
        pack([[10]], strategy="firstfit")


def test_no_documents_give_no_rows():
    assert pack([]) == ([], [])
    assert pack([[], []]) == ([], [])


def test_documents_are_not_changed():
    given_ids = [1, 10, 11]
    documents = [Document(given_ids, 3, 0)]
    pack_sequences_optimized(documents, 2, 1, 0, overflow=True, bos_token_id=1)
    assert given_ids == [1, 10, 11]


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 25), max_size=8),
    bos=st.sampled_from([None, 1]),
    max_length=st.integers(3, 12),
    stride=st.integers(0, 1),
    overflow=st.booleans(),
    strategy=st.sampled_from(["best_fit", "first_fit"]),
    min_len=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_rows_are_those_of_block_tokenize_fn(
    lengths, bos, max_length, stride, overflow, strategy, min_len, shuffle
):
    """One algorithm in the project, not two."""
    lists = document_ids(lengths)
    rows, starts = pack(
        lists,
        max_length,
        min_len,
        stride,
        overflow,
        strategy=strategy,
        bos_token_id=bos,
        shuffle_output=shuffle,
    )
    expected = pack_texts(
        [text_of(ids) for ids in lists],
        LiteralTokenizer(bos_token_id=bos),
        BlockOptions(
            max_length=max_length,
            overflow=overflow,
            packed=True,
            packing_strategy=strategy,
            shuffle_output=shuffle,
            stride=stride,
            min_len=min_len,
            add_eos=False,
        ),
    )
    assert (rows, starts) == (expected.input_ids, expected.document_starts)
