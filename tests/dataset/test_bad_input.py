"""User errors: an error that names the row and the remedy, or a counted drop."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from datasets import Dataset, IterableDataset

import quire
from quire.errors import InvalidDocument, InvalidOption, OversizedDocument

TOKENS = [{"input_ids": [1, 2, 3]}]
TEXT = [{"text": "abc"}]


def pack(dataset, tokenizer=None, **options):
    return quire.pack_dataset(dataset, tokenizer, **{"max_length": 8, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_lenght": 8}, "unknown option 'max_lenght'; did you mean 'max_length'"),
        ({"packing_strategy": "greedy"}, "unknown option 'packing_strategy'"),
        ({"strategy": "bestfit"}, "unknown strategy 'bestfit'; did you mean 'best_fit'"),
        ({"overlong": "splt"}, "overlong is 'splt' but must be one of .*; did you mean split"),
        ({"columns": ["label"]}, "unknown column 'label'"),
        ({"columns": "input_ids"}, "columns is 'input_ids' but must be a list"),
        ({"group_column": "input_id"}, "unknown column 'input_id'; did you mean 'input_ids'"),
        ({"stride": 8}, "stride=8 leaves no room"),
        ({"stride": -1}, "stride is -1 but must be an integer >= 0"),
        ({"max_length": 0}, "max_length is 0 but must be an integer >= 1"),
        ({"max_length": 8.0}, "max_length is 8.0 but must be an integer"),
        ({"min_length": 9}, "would drop every row"),
        ({"drop_longer_than": 0}, "drop_longer_than is 0 but must be an integer >= 1"),
        ({"max_bad_records": -1}, "max_bad_records is -1 but must be an integer >= 0"),
        (
            {"align": 9},
            r"align=9 is more than the 8 tokens of a row; lower align or raise max_length$",
        ),
        ({"shuffle": "yes"}, "shuffle is 'yes' but must be True or False"),
        ({"add_bos": 1}, "add_bos is 1 but must be True or False"),
        ({"truncate_at": "\n\n"}, "truncate_at=.* is only for text"),
        ({"messages_column": "message"}, "messages need a tokenizer"),
    ],
)
def test_an_impossible_option_is_an_error(options, message):
    with pytest.raises(InvalidOption, match=message):
        pack(TOKENS, **options)


def test_an_option_that_would_be_ignored_is_an_error():
    with pytest.raises(InvalidOption, match=r"columns=\('labels',\) is only for tokens"):
        pack([{"text": "a", "labels": [1]}], "byte", columns=["labels"])
    with pytest.raises(InvalidOption, match="both 'input_ids' and 'text', and a tokenizer"):
        pack([{"text": "a", "input_ids": [1]}], "byte")
    assert len(pack([{"text": "a", "input_ids": [1]}])) == 1


def test_a_group_and_a_cap_on_documents_contradict_each_other():
    with pytest.raises(InvalidOption, match=r"max_documents_per_row=1 cannot be combined"):
        pack([{"input_ids": [1], "g": 1}], group_column="g", max_documents_per_row=1)


def test_a_group_that_does_not_fit_is_an_error_on_request():
    records = [{"input_ids": [9], "g": 2}] + [{"input_ids": [1] * 5, "g": 1}] * 2
    with pytest.raises(OversizedDocument, match="the group of document 1 takes 10 tokens"):
        pack(records, group_column="g", overlong="error")
    with pytest.raises(OversizedDocument, match="document 0 has 9 tokens but a row holds 8"):
        pack([{"input_ids": [1] * 9}], overlong="error")


def test_a_group_column_must_hold_values_that_can_be_equal():
    with pytest.raises(InvalidDocument, match=r"column 'g' holds list<.*cannot be compared"):
        pack([{"input_ids": [1], "g": [1]}], group_column="g")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (IterableDataset.from_generator(lambda: iter(TOKENS)), "IterableDataset is a stream.*map"),
        (iter(TOKENS), "cannot be packed; pass a datasets.Dataset"),
        ("abc", "str cannot be packed"),
        (None, "NoneType cannot be packed"),
    ],
    ids=["stream", "iterator", "string", "none"],
)
def test_an_object_that_is_not_a_dataset_is_rejected(dataset, message):
    with pytest.raises(InvalidOption, match=message):
        pack(dataset)


def test_records_must_be_dicts():
    with pytest.raises(InvalidDocument, match=r'dict; pass texts as \[\{"text": text\} for text'):
        quire.pack_dataset(["a", "b"], "byte", max_length=8)
    with pytest.raises(InvalidDocument, match="record 1 is list but must be a dict"):
        pack([{"input_ids": [1]}, [2]])
    with pytest.raises(InvalidDocument, match="record 0 is list") as caught:
        pack({"input_ids": [[1, 2]]})
    assert caught.value.__notes__ == ["in split 'input_ids'"]


def test_tokens_or_a_tokenizer_are_needed():
    with pytest.raises(InvalidOption, match=r"no 'input_ids' column \(it has text\); pass a token"):
        pack(TEXT)
    with pytest.raises(InvalidOption, match="unknown column 'text'; did you mean 'texts'"):
        pack([{"texts": "abc"}], "byte")


@pytest.mark.parametrize("name", ["keep_sources", "return_ledger", "assistant_only", "shuffle"])
def test_a_flag_is_true_or_false(name):
    with pytest.raises(InvalidOption, match=f"{name} is 'no' but must be True or False"):
        quire.pack_dataset([{"text": "a"}], "byte", max_length=8, **{name: "no"})


def test_rows_that_are_packed_already_are_rejected():
    rows = pack(Dataset.from_list(TOKENS))
    with pytest.raises(InvalidOption, match="packed already: it has 'document_starts'"):
        pack(rows)
    with pytest.raises(InvalidOption, match="packed already: it has 'document_starts'"):
        pack(rows, columns=[])


@pytest.mark.parametrize("columns", [None, []])
def test_rows_packed_by_other_tools_are_rejected(columns):
    """As trl's packing returns them."""
    row = {"input_ids": [5, 6, 7, 8], "seq_lengths": [2, 2]}
    with pytest.raises(InvalidOption, match="packed already: it has 'seq_lengths'"):
        pack([row], columns=columns)
    row = {"input_ids": [5, 6, 7, 8], "position_ids": [0, 1, 0, 0]}
    with pytest.raises(InvalidDocument, match="record 0 holds several documents: its position_ids"):
        pack([row], columns=columns)


def test_positions_of_one_document_and_a_number_named_seq_lengths_do_not_count_as_packed_rows():
    row = {"input_ids": [5, 6], "position_ids": [0, 1], "seq_lengths": 2}
    assert pack([row])["position_ids"].to_pylist() == [[0, 1]]


def test_rows_with_lengths_of_their_documents_are_rejected_as_input():
    rows = pack([{"text": "a"}, {"text": "b"}], "byte", seq_lengths=True).to_pylist()
    rows[0].pop("document_starts")
    with pytest.raises(InvalidOption, match="packed already: it has 'seq_lengths'"):
        pack(rows)


def test_a_column_named_position_ids_is_not_overwritten():
    with pytest.raises(InvalidOption, match="position_ids=True writes a column 'position_ids'"):
        pack([{"input_ids": [5, 6], "position_ids": [0, 1]}], position_ids=True)


def test_a_column_named_like_a_source_column_is_not_overwritten():
    records = [{"input_ids": [1, 2], "document_ids": [7, 8]}]
    assert pack(records)["document_ids"].to_pylist() == [[7, 8]]
    with pytest.raises(InvalidOption, match="keep_sources writes a column 'document_ids'"):
        pack(records, keep_sources=True)


# Texts


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "has no text"),
        (5, "has a text of type int"),
        (["a"], "has a text of type list"),
        ("a\ud800b", "has half a surrogate pair at character 1 of its text"),
        (b"a", "has a text of type bytes"),
    ],
    ids=str,
)
def test_a_value_that_is_not_text_is_an_error_or_counted_and_never_packed_as_its_name(
    value, problem
):
    records = [{"text": "ab"}, {"text": value}, {"text": "c"}]
    with pytest.raises(InvalidDocument, match=f"record 1 {problem}.*max_bad_records"):
        pack(records, "byte")
    rows, ledger = pack(records, "byte", max_bad_records=1, return_ledger=True, keep_sources=True)
    assert rows["input_ids"].to_pylist() == [[1, 100, 101, 2, 1, 102, 2]]
    assert rows["document_ids"].to_pylist() == [[0, 2]]
    assert ledger.check().documents.dropped == {"bad_record": 1}


def test_a_record_without_the_key_is_a_bad_record():
    with pytest.raises(InvalidDocument, match="record 1 has no text"):
        pack([{"text": "ab"}, {"txt": "c"}], "byte")


def test_bytes_of_arrow_that_are_not_utf8_are_a_bad_record():
    column = pa.StringArray.from_buffers(
        3, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0])),
        pa.py_buffer(b"a\xff\xfeb"),
    )  # fmt: skip
    table = pa.table({"text": column})
    with pytest.raises(InvalidDocument, match="record 1 has a text that is not UTF-8"):
        pack(table, "byte")
    rows, _ = pack(table, "byte", max_bad_records=1, return_ledger=True)
    assert rows["input_ids"].to_pylist() == [[1, 100, 2, 1, 101, 2]]


def test_a_column_of_numbers_is_not_text():
    with pytest.raises(
        InvalidDocument, match=r"column 'n' holds int64 but text is needed.*text_column"
    ):
        pack(Dataset.from_dict({"n": [1, 2]}), "byte", text_column="n")


def test_empty_documents_are_counted_and_cause_a_warning():
    with pytest.warns(UserWarning, match="dropped empty: 1 document, 0 tokens; return_ledger"):
        assert len(pack([{"text": ""}, {"text": "a"}], "byte")) == 1
    for empty, tokenizer in ([{"text": ""}], "byte"), ([{"input_ids": []}], None):
        with pytest.warns(UserWarning, match="empty: 1 document, 0 tokens and nothing is left"):
            rows, ledger = pack(empty, tokenizer, return_ledger=True)
        assert len(rows) == 0 and rows.column_names == ["input_ids", "document_starts"]
        assert ledger.check().documents.dropped == {"empty": 1}


def test_drops_cause_a_warning_unless_the_ledger_is_requested():
    records = [{"input_ids": [1] * 20}, {"input_ids": [2] * 3}]
    with pytest.warns(UserWarning, match="truncated: 0 documents, 12 tokens") as caught:
        pack(records, overlong="truncate")
    assert caught[0].filename == __file__
    _, ledger = pack(records, overlong="truncate", return_ledger=True)
    assert ledger.tokens.dropped == {"truncated": 12}


def test_text_is_cut_and_long_documents_are_dropped_as_in_a_map_batch():
    records = [{"text": "ab\n\ncd"}, {"text": "abcdefghi"}]
    rows, ledger = pack(records, "byte", truncate_at="\n\n", drop_longer_than=5, return_ledger=True)
    assert rows["input_ids"].to_pylist() == [[1, 100, 101, 2]]
    assert ledger.documents.dropped == {"too_long": 1}
    tokens = [{"input_ids": [1] * 5}, {"input_ids": [1] * 6}]
    rows, ledger = pack(tokens, drop_longer_than=5, return_ledger=True)
    assert ledger.check().tokens.dropped == {"too_long": 6}


# Tokens


def test_ids_out_of_the_vocabulary_are_an_error_and_never_wrapped():
    records = [{"input_ids": [1, 2]}, {"input_ids": [3, 259]}]
    with pytest.raises(
        InvalidDocument, match="record 1 has token id 259 but ids are from 0 to 258"
    ):
        pack(records, "byte")
    with pytest.raises(InvalidDocument, match="record 0 has token id -1 but ids are from 0;"):
        pack([{"input_ids": [1, -1]}])
    assert len(pack(records)) == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.5, 2.0]], "column 'input_ids' holds double but token ids are integers"),
        (["abc"], "column 'input_ids' has type string but lists of numbers"),
        ([[[1], [2]]], "column 'input_ids' has type list<.*list<.*but lists of numbers"),
        ([[1], "a"], "record 1 has a input_ids of type str, which does not fit"),
        ([[1], [2], [3, "x"]], "record 2 has a input_ids of type list, which does not fit"),
        ([[1], [2**70]], "record 1 has a input_ids of type list"),
    ],
)
def test_values_that_are_not_tokens_are_an_error_with_their_row(values, message):
    with pytest.raises(InvalidDocument, match=message):
        pack([{"input_ids": value} for value in values])


def test_a_column_that_is_not_requested_may_hold_anything():
    records = [{"input_ids": [1], "x": 1}, {"input_ids": [2], "x": "s"}]
    with pytest.raises(InvalidDocument, match=r"record 1 has a x of type str.*columns="):
        pack(records)
    assert len(pack(records, columns=[])) == 1
    texts = [{"text": "a", "x": 1}, {"text": "b", "x": object()}]
    assert len(pack(texts, "byte")) == 1


# Tokenizers


def test_a_tokenizer_that_needs_remote_code_is_not_run(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": "x"}})
    )
    import tokenizers

    tokenizers.Tokenizer(tokenizers.models.BPE()).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InvalidOption, match=r"requires custom code \(auto_map\)"):
        pack(TEXT, tmp_path)


def test_a_path_or_object_that_is_not_a_tokenizer_is_rejected(tmp_path):
    with pytest.raises(InvalidOption, match="no tokenizer at"):
        pack(TEXT, tmp_path / "nowhere")
    with pytest.raises(InvalidOption, match="int is not a tokenizer"):
        pack(TEXT, 5)


@pytest.mark.parametrize("records", [[], Dataset.from_dict({}), pa.table({})], ids=type)
@pytest.mark.parametrize("tokenizer", ["byte", None])
def test_no_records_give_no_rows(records, tokenizer):
    rows, ledger = pack(records, tokenizer, return_ledger=True)
    assert (len(rows), ledger.documents.input) == (0, 0)


def test_a_second_positional_argument_is_not_ignored():
    with pytest.raises(TypeError, match="positional arguments"):
        quire.pack_dataset([{"input_ids": [1] * 20}], None, 5, max_length=8)
