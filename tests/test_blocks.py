"""block_tokenize_fn and pack_texts: texts of one batch to rows."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest

from quire.blocks import _warn_of_drops, block_tokenize_fn
from quire.errors import InvalidDocument, InvalidOption, StrategyError
from tests.text.literal_packing import PLAIN, pack
from tests.text.literal_tokenizer import LiteralTokenizer, text_of

FOUR = ["10 11 12", "20 21 22 23", "30 31 32 33 34", "40 41 42 43 44 45"]


@pytest.fixture(autouse=True)
def _warned_already(monkeypatch):
    monkeypatch.setattr("quire.blocks._warn_of_drops", lambda *_: None)


def numbers(first: int, count: int) -> str:
    return text_of(range(first, first + count))


# Golden rows


def test_greedy_with_overflow_fills_rows_to_the_brim():
    rows = pack(FOUR, max_length=8, packed=True)
    assert rows.input_ids == [
        [10, 11, 12, 20, 21, 22, 23, 30],
        [31, 32, 33, 34, 40, 41, 42, 43],
        [44, 45],
    ]
    assert rows.document_starts == [[0, 3, 7], [0, 4], [0]]


def test_greedy_with_overflow_and_specials():
    rows = pack(FOUR, LiteralTokenizer(), max_length=8, packed=True)
    assert rows.input_ids == [
        [1, 10, 11, 12, 2, 1, 20, 21],
        [1, 22, 23, 2, 1, 30, 31, 32],
        [1, 33, 34, 2, 1, 40, 41, 42],
        [1, 43, 44, 45, 2],
    ]
    assert rows.document_starts == [[0, 5], [0, 4], [0, 4], [0]]


def test_greedy_without_overflow_is_next_fit():
    rows = pack(FOUR, max_length=8, packed=True, overflow=False)
    assert rows.input_ids == [
        [10, 11, 12, 20, 21, 22, 23],
        [30, 31, 32, 33, 34],
        [40, 41, 42, 43, 44, 45],
    ]
    assert rows.document_starts == [[0, 3], [0], [0]]
    assert not rows.ledger.tokens.dropped


def test_best_fit_puts_three_documents_into_one_row_longest_first():
    rows = pack(
        ["10 11 12", "20 21", "30 31 32"], max_length=10, packed=True, packing_strategy="best_fit"
    )
    assert rows.input_ids == [[10, 11, 12, 30, 31, 32, 20, 21]]
    assert rows.document_starts == [[0, 3, 6]]


def test_best_fit_takes_the_fullest_row_and_first_fit_the_oldest():
    texts = [numbers(100 * n, n) for n in (12, 10, 9, 1)]
    best, first = (
        pack(texts, max_length=20, packed=True, packing_strategy=strategy)
        for strategy in ("best_fit", "first_fit")
    )
    assert best.document_starts == [[0], [0, 10, 19]]
    assert first.document_starts == [[0, 12], [0, 10]]


@pytest.mark.parametrize("strategy", ["best_fit", "first_fit"])
def test_ties_go_to_the_oldest_row(strategy):
    texts = ["50 51 52", "60 61 62", "70"]
    rows = pack(texts, max_length=4, packed=True, packing_strategy=strategy)
    assert rows.input_ids == [[50, 51, 52, 70], [60, 61, 62]]


def test_best_fit_packs_the_fragments_of_long_documents_with_the_others():
    texts = [numbers(10, 12), numbers(30, 3)]
    rows = pack(texts, max_length=5, packed=True, packing_strategy="best_fit")
    assert rows.input_ids == [[*range(10, 15)], [*range(15, 20)], [30, 31, 32, 20, 21]]
    assert rows.document_starts == [[0], [0], [0, 3]]


def test_a_document_of_12_tokens_is_split_into_5_5_and_2():
    for packed in (False, True):
        rows = pack([numbers(10, 12)], max_length=5, packed=packed)
        assert rows.input_ids == [[*range(10, 15)], [*range(15, 20)], [20, 21]]
        assert rows.document_starts == [[0], [0], [0]]


def test_an_overlap_of_2_repeats_two_tokens_and_no_third_fragment_is_only_overlap():
    rows = pack([numbers(10, 8)], max_length=5, stride=2)
    assert rows.input_ids == [[10, 11, 12, 13, 14], [13, 14, 15, 16, 17]]
    assert rows.ledger.tokens.overlap == 2


def test_documents_of_50_30_and_20_tokens_start_at_0_50_and_80():
    for strategy in ("greedy", "best_fit", "first_fit"):
        rows = pack(
            [numbers(1000 * n, n) for n in (50, 30, 20)],
            max_length=100,
            packed=True,
            packing_strategy=strategy,
        )
        assert rows.document_starts == [[0, 50, 80]]


def test_without_packing_a_row_is_one_fragment():
    rows = pack(FOUR, LiteralTokenizer(), max_length=6)
    assert rows.input_ids == [
        [1, 10, 11, 12, 2],
        [1, 20, 21, 22, 23, 2],
        [1, 30, 31, 32, 33],
        [1, 34, 2],
        [1, 40, 41, 42, 43, 44],
        [1, 45, 2],
    ]
    assert rows.document_starts == [[0]] * 6


# Specials


def test_no_special_token_is_added_if_the_tokenizer_has_none():
    assert pack(["10"], PLAIN).input_ids == [[10]]
    assert pack(["10"], LiteralTokenizer(bos_token_id=None)).input_ids == [[10, 2]]
    assert pack(["10"], LiteralTokenizer(eos_token_id=None)).input_ids == [[1, 10]]
    assert pack(["10"], LiteralTokenizer(), add_bos=False, add_eos=False).input_ids == [[10]]


def test_the_fragment_of_eos_has_a_token_of_content():
    rows = pack([numbers(10, 5)], LiteralTokenizer(bos_token_id=None), max_length=5)
    assert rows.input_ids == [[10, 11, 12, 13], [14, 2]]
    rows = pack(["10 11", "20 21"], LiteralTokenizer(bos_token_id=None), max_length=5, packed=True)
    assert rows.input_ids == [[10, 11, 2, 20], [21, 2]], "a place stays free for it"


def test_eos_may_follow_only_overlap_if_there_is_no_room_for_more():
    rows = pack([numbers(10, 3)], LiteralTokenizer(), max_length=4, stride=2)
    assert rows.input_ids == [[1, 10, 11, 12], [1, 11, 12, 2]]


def test_a_text_that_contains_its_bos_starts_with_only_one():
    rows = pack(["1 10", "20"], LiteralTokenizer(), packed=True, max_length=10)
    assert rows.input_ids == [[1, 10, 2, 1, 20, 2]]


@pytest.mark.parametrize(
    ("max_length", "message"),
    [
        (1, r"a row of max_length=1 has no room for a token after BOS .* raise max_length or"),
        (2, "in a row that holds 1 after BOS; raise max_length"),
    ],
)
def test_errors_name_the_options_that_were_given(max_length, message):
    with pytest.raises(ValueError, match=message):
        pack(["10 11 12"], LiteralTokenizer(), max_length=max_length)


def test_a_literal_eos_inside_a_document_is_not_a_boundary():
    rows = pack(["10 2 11 2 12"], LiteralTokenizer(), packed=True, max_length=20)
    assert rows.input_ids == [[1, 10, 2, 11, 2, 12, 2]]
    assert rows.document_starts == [[0]]


def test_an_empty_document_leaves_no_bos():
    rows = pack(["", "10", ""], LiteralTokenizer(), packed=True, max_length=8)
    assert rows.input_ids == [[1, 10, 2]]
    assert rows.ledger.documents.dropped == {"empty": 2}
    nothing = pack(["", ""], LiteralTokenizer(), packed=True, max_length=8)
    assert (nothing.input_ids, nothing.document_starts) == ([], [])
    assert pack([]).input_ids == []


# Overlap


@pytest.mark.parametrize("strategy", ["greedy", "best_fit", "first_fit"])
def test_a_fragment_repeats_the_tokens_before_its_start(strategy):
    rows = pack(
        [numbers(10, 9)],
        LiteralTokenizer(),
        max_length=6,
        stride=2,
        packed=True,
        packing_strategy=strategy,
    )
    assert sorted(rows.input_ids) == [
        [1, 10, 11, 12, 13, 14],
        [1, 13, 14, 15, 16, 17],
        [1, 16, 17, 18, 2],
    ]


def test_overlap_does_not_reach_before_the_document():
    rows = pack(["10 11 12", "20 21 22 23 24"], max_length=5, stride=3, packed=True)
    assert rows.input_ids == [[10, 11, 12, 20, 21], [20, 21, 22, 23, 24]]
    assert rows.document_starts == [[0, 3], [0]]


@pytest.mark.parametrize(
    ("tokenizer", "max_length", "stride"),
    [
        (PLAIN, 4, 4),
        (PLAIN, 4, 100),
        (LiteralTokenizer(), 4, 3),
        (LiteralTokenizer(), 1, 0),
        (LiteralTokenizer(), 2, 0),
        (LiteralTokenizer(bos_token_id=None), 1, 0),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_no_room_for_a_new_token_is_a_value_error_and_nothing_hangs(
    tokenizer, max_length, stride, packed
):
    with pytest.raises(ValueError, match=r"stride=\d+ leaves no room|no room for a token after"):
        pack([numbers(10, 9)], tokenizer, max_length=max_length, stride=stride, packed=packed)


def test_a_negative_stride_is_a_value_error():
    with pytest.raises(ValueError, match="stride is -1 but must be an integer >= 0"):
        pack(["10"], stride=-1)


# Cuts and drops


def test_without_overflow_what_is_cut_is_counted_without_eos():
    rows = pack([numbers(10, 7), numbers(20, 4)], LiteralTokenizer(), max_length=5, overflow=False)
    assert rows.input_ids == [[1, 10, 11, 12, 13], [1, 20, 21, 22, 23]]
    assert rows.ledger.tokens.dropped == {"truncated": 3}, "and EOS of both documents"
    assert rows.ledger.tokens.special == 2
    assert rows.ledger.documents.emitted == 2 and not rows.ledger.documents.dropped


def test_min_len_applies_to_rows_so_that_short_documents_stay_in_long_ones():
    rows = pack(FOUR, max_length=8, packed=True, min_len=3)
    assert [len(row) for row in rows.input_ids] == [8, 8]
    assert rows.ledger.tokens.dropped == {"row_too_short": 2}
    assert not rows.ledger.documents.dropped, "the document's other tokens are there"


def test_min_len_applies_to_fragments_where_a_row_is_one():
    rows = pack(["10", *FOUR], LiteralTokenizer(), max_length=6, min_len=5)
    assert [row[1] for row in rows.input_ids] == [10, 20, 30, 40], "BOS and EOS are tokens of a row"
    assert rows.ledger.documents.dropped == {"row_too_short": 1}
    assert rows.ledger.tokens.dropped == {"row_too_short": 3}, "each with an EOS"


def test_documents_longer_than_max_len_are_dropped_whole():
    rows = pack(FOUR, LiteralTokenizer(), max_length=8, packed=True, max_len=5)
    assert rows.input_ids == [[1, 10, 11, 12, 2, 1, 20, 21], [1, 22, 23, 2]]
    assert rows.ledger.documents.dropped == {"too_long": 2}
    assert rows.ledger.tokens.dropped == {"too_long": 11}


def test_a_text_is_cut_before_the_first_match_of_truncate_at():
    assert pack(["10 11 99 12"], truncate_at="99").input_ids == [[10, 11]]


# Shuffling


def test_the_seed_decides_the_order_of_rows_and_nothing_else():
    texts = [numbers(100 * n, 3) for n in range(1, 60)]
    plain = pack(texts, max_length=5)
    shuffled = pack(texts, max_length=5, shuffle_output=True)
    assert shuffled.input_ids != plain.input_ids
    assert sorted(shuffled.input_ids) == sorted(plain.input_ids)
    assert pack(texts, max_length=5, shuffle_output=True, seed=42) == shuffled
    other = pack(texts, max_length=5, shuffle_output=True, seed=7)
    assert other.input_ids != shuffled.input_ids


def test_starts_move_with_their_rows():
    texts = [numbers(100 * n, 1 + n % 5) for n in range(1, 40)]
    options = {"max_length": 9, "packed": True}
    plain, shuffled = pack(texts, **options), pack(texts, **options, shuffle_output=True)
    pairs = [zip(rows.input_ids, rows.document_starts, strict=True) for rows in (plain, shuffled)]
    assert sorted(pairs[0]) == sorted(pairs[1])


def test_no_seed_draws_new_entropy_each_time():
    texts = [numbers(100 * n, 3) for n in range(1, 60)]
    features = {"text": texts}
    call = partial(block_tokenize_fn, features, PLAIN, "text", shuffle_output=True, seed=None)
    first, second = call(), call()
    assert first != second
    assert sorted(first["input_ids"]) == sorted(second["input_ids"])


# Strategies of other people


def test_a_registered_strategy_is_used(registered):
    def backwards(sizes, max_length, options):
        return list(range(len(sizes)))[::-1]

    registered("backwards", backwards)
    rows = pack(FOUR, max_length=8, packed=True, packing_strategy="backwards")
    assert [row[0] for row in rows.input_ids] == [40, 30, 20, 10]
    registered("all_in_one", lambda sizes, max_length, options: [0] * len(sizes))
    with pytest.raises(StrategyError, match="'all_in_one' put 18 tokens into a row that holds 8"):
        pack(FOUR, max_length=8, packed=True, packing_strategy="all_in_one")


# Warnings


@pytest.fixture
def warned_of():
    """Calls block_tokenize_fn in a process without earlier warnings; its warning, if any."""

    def call(*texts, **options):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            block_tokenize_fn({"text": list(texts)}, PLAIN, "text", **{"max_length": 2, **options})
        assert [one.filename for one in seen] == [__file__] * len(seen)
        assert len(seen) < 2
        return str(seen[0].message) if seen else ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quire.blocks._warn_of_drops", _warn_of_drops)
        patch.setattr("quire.blocks._warned", set())
        yield call


def test_each_reason_causes_one_warning(warned_of):
    said = warned_of("", "10 11 12", overflow=False)
    assert "dropped empty: 1 document, 0 tokens, truncated: 0 documents, 1 token in" in said
    assert "further drops for the same reason cause no warning" in said
    assert warned_of("", "10 11 12", overflow=False) == ""


def test_one_reason_does_not_silence_another(warned_of):
    assert "dropped empty: 1 document, 0 tokens in" in warned_of("", "10")
    assert "dropped truncated: 0 documents, 1 token in" in warned_of("", "1 2 3", overflow=False)
    assert "dropped too_long: 1 document, 3 tokens in" in warned_of("", "1 2 3", "1", max_len=2)
    assert "dropped row_too_short: 1 document, 1 token in" in warned_of("10", "10 11", min_len=2)
    assert warned_of("", "10 11 12", "10", max_len=2) == ""


def test_a_batch_that_loses_everything_causes_a_warning_even_if_its_reason_did_before(warned_of):
    assert warned_of("", "10").startswith("block_tokenize_fn dropped empty: 1")
    said = warned_of("", "")
    assert said.startswith("block_tokenize_fn returned no row: empty: 2 documents, 0 tokens in")
    assert warned_of("", "") == ""


def test_there_is_no_warning_if_nothing_is_dropped(warned_of):
    assert warned_of(*FOUR, max_length=4) == ""
    assert warned_of() == ""


# Bad input


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [(None, "NoneType"), (5, "int"), (2.5, "float"), (b"x", "bytes"), (["x"], "list")],
)
def test_a_document_that_is_not_a_text_is_named_by_its_number(wrong, kind):
    with pytest.raises(InvalidDocument, match=f"document 1 is {kind} but must be a string"):
        pack(["10", wrong])


@pytest.mark.parametrize("texts", ["one text", None, 5])
def test_texts_must_be_a_list(texts):
    with pytest.raises(InvalidDocument, match="but a list of strings is needed; use map"):
        block_tokenize_fn({"text": texts}, PLAIN, "text")


def test_texts_may_be_an_array_or_a_tuple():
    for texts in (np.array(["10", "20 21"]), ("10", "20 21")):
        rows = block_tokenize_fn({"text": texts}, PLAIN, "text")
        assert rows["input_ids"] == [[10], [20, 21]]


def test_features_must_be_a_mapping():
    with pytest.raises(InvalidDocument, match="features is list but a mapping"):
        block_tokenize_fn(["text"], PLAIN, "text")


def test_an_unknown_feature_is_an_error_with_the_nearest_name():
    with pytest.raises(InvalidOption, match="unknown feature 'txt'; did you mean 'text'"):
        block_tokenize_fn({"text": ["10"], "label": [0]}, PLAIN, "txt")


@pytest.mark.parametrize("packed", [True, False])
def test_an_unknown_strategy_is_an_error_with_the_nearest_name_packed_or_not(packed):
    with pytest.raises(InvalidOption, match="packing_strategy 'bestfit'; did you mean 'best_fit'"):
        pack(["10"], packed=packed, packing_strategy="bestfit")


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_lenght'"):
        block_tokenize_fn({"text": ["10"]}, PLAIN, "text", max_lenght=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length is 0 but must be an integer >= 1"),
        ({"max_length": 8.0}, "max_length is 8.0"),
        ({"max_length": 8, "min_len": 9}, "min_len=9 would drop every row"),
        ({"min_len": 0}, "min_len is 0"),
        ({"max_len": 0}, "max_len is 0"),
        ({"stride": 1.5}, "stride is 1.5"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"overflow": "no"}, "overflow is 'no' but must be True or False"),
        ({"packed": 1}, "packed is 1 but must be True or False"),
        ({"shuffle_output": 1}, "shuffle_output is 1 but must be True or False"),
        ({"add_eos": "yes"}, "add_eos is 'yes' but must be True or False"),
        ({"truncate_at": "["}, r"truncate_at is '\[', which is not a regular expression"),
    ],
)
def test_options_out_of_range_are_typed_errors_with_the_caller_s_names(options, message):
    with pytest.raises(InvalidOption, match=message):
        block_tokenize_fn({"text": ["10"]}, PLAIN, "text", **options)


def test_texts_and_options_are_not_changed():
    texts = list(FOUR)
    pack(texts, LiteralTokenizer(), max_length=5, packed=True, shuffle_output=True)
    assert texts == FOUR
