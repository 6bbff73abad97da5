"""Parallel columns go with their tokens through every cut, and no token is lost."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataset.rebuild import documents, fragments, num_tokens

import quire
from quire.errors import InvalidDocument, InvalidOption
from quire.plan.strategies import BUILT_IN

OVERLONG = ["split", "truncate", "truncate_left", "drop", "fill"]


def pack(records, **options):
    rows, ledger = quire.pack_dataset(records, **options, return_ledger=True)
    ledger.check()
    return rows.to_pylist(), ledger


def record(document: int, length: int) -> dict:
    """Every column is a function of the token, so that an offset of one position is detected."""
    ids = [document * 100 + place for place in range(length)]
    return {
        "input_ids": ids,
        "labels": [token + 1 for token in ids],
        "loss_mask": [token % 3 == 0 for token in ids],
        "token_type_ids": [token % 2 for token in ids],
        "weight": [token / 4 for token in ids],
    }


def test_columns_are_cut_where_tokens_are_cut():
    rows, _ = pack([record(0, 3), record(1, 4)], max_length=5, strategy="wrapped")
    assert rows == [
        {
            "input_ids": [0, 1, 2, 100, 101],
            "labels": [1, 2, 3, 101, 102],
            "loss_mask": [True, False, False, False, False],
            "token_type_ids": [0, 1, 0, 0, 1],
            "weight": [0.0, 0.25, 0.5, 25.0, 25.25],
            "document_starts": [0, 3],
        },
        {
            "input_ids": [102, 103],
            "labels": [103, 104],
            "loss_mask": [True, False],
            "token_type_ids": [0, 1],
            "weight": [25.5, 25.75],
            "document_starts": [0],
        },
    ]


@st.composite
def terms(draw):
    max_length = draw(st.integers(1, 12))
    align = draw(st.sampled_from([k for k in (1, 2, 4) if k <= max_length]))
    row = max_length // align * align
    return {
        "max_length": max_length,
        "strategy": draw(st.sampled_from(BUILT_IN)),
        "overlong": draw(st.sampled_from(OVERLONG)),
        "stride": draw(st.integers(0, row - 1)),
        "min_length": draw(st.sampled_from([1, 1, max_length // 2 or 1])),
        "align": align,
        "shuffle": draw(st.sampled_from([None, True, False])),
        "seed": draw(st.integers(0, 3)),
        "max_documents_per_row": draw(st.sampled_from([None, None, 1, 3])),
    }


@settings(max_examples=250, deadline=None)
@given(lengths=st.lists(st.integers(0, 40), max_size=8), options=terms())
def test_every_value_stays_with_its_token_and_every_token_is_counted(lengths, options):
    table = pa.table(
        {
            name: pa.array([record(d, n)[name] for d, n in enumerate(lengths)], pa.list_(kind))
            for name, kind in (
                ("input_ids", pa.int32()),
                ("labels", pa.int64()),
                ("loss_mask", pa.bool_()),
                ("token_type_ids", pa.int8()),
                ("weight", pa.float32()),
            )
        }
    )
    with_warning = sum(lengths) and options["overlong"]
    try:
        rows, ledger = pack(table, **options, keep_sources=True)
    except UserWarning as warning:  # nothing was left
        assert "nothing is left" in str(warning) and (with_warning or lengths)
        return
    for row in rows:
        ids = row["input_ids"]
        assert len(ids) <= options["max_length"]
        assert row["labels"] == [token + 1 for token in ids]
        assert row["loss_mask"] == [token % 3 == 0 for token in ids]
        assert row["token_type_ids"] == [token % 2 for token in ids]
        assert row["weight"] == [token / 4 for token in ids]
    whole = documents(rows)
    for document, places in whole.items():
        assert places == {place: document * 100 + place for place in places}
    unique = sum(map(len, whole.values()))
    assert ledger.tokens.emitted == unique
    assert ledger.tokens.overlap == num_tokens(rows) - unique
    assert ledger.tokens.input == sum(lengths)
    assert ledger.documents.input == len(lengths)
    assert ledger.tokens.padding == len(rows) * options["max_length"] - num_tokens(rows)
    lossless = options["overlong"] in ("split", "fill") and options["min_length"] == 1
    if lossless:
        assert {d: len(whole[d]) for d in whole} == {d: n for d, n in enumerate(lengths) if n}
        assert ledger.tokens.num_dropped == 0
    order_kept = options["strategy"] in ("greedy", "wrapped") and not options["shuffle"]
    if order_kept:
        sources = [(document, offset) for document, offset, _ in fragments(rows)]
        assert sources == sorted(sources)


class Letters:
    """A tokenizer whose tokens encode their position: text 'd:n' is n tokens of document d."""

    def __init__(self, bos, eos):
        self.bos_token_id, self.eos_token_id = bos, eos

    def __call__(self, texts):
        pairs = [map(int, text.split(":")) for text in texts]
        return {"input_ids": [[10 + d * 100 + k for k in range(n)] for d, n in pairs]}


@settings(max_examples=250, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    options=terms(),
    bos=st.sampled_from([None, 1]),
    eos=st.sampled_from([None, 2]),
)
def test_texts_are_rebuilt_from_their_rows_with_any_specials(lengths, options, bos, eos):
    records = [{"text": f"{document}:{n}"} for document, n in enumerate(lengths)]
    try:
        rows, ledger = quire.pack_dataset(
            records,
            Letters(bos, eos),
            **options,
            add_bos=True,
            keep_sources=True,
            return_ledger=True,
        )
    except InvalidOption as error:
        assert "raise max_length" in str(error)
        return
    except UserWarning as warning:
        assert "nothing is left" in str(warning)
        return
    rows = rows.to_pylist()
    ledger.check()
    prefix = int(bos is not None)
    for _, _, tokens in fragments(rows):
        assert not prefix or tokens[0] == bos
        assert set(tokens[prefix:]) != {eos}, "EOS stands alone"
    for document, places in documents(rows, prefix=prefix).items():
        content = [10 + document * 100 + k for k in range(lengths[document])]
        full = dict(enumerate([*content, *([] if eos is None else [eos])]))
        assert places.items() <= full.items()
        if options["overlong"] in ("split", "fill") and options["min_length"] == 1:
            assert places == full
    num_fragments = sum(len(row["document_starts"]) for row in rows)
    num_eos = sum(row["input_ids"].count(eos) for row in rows)
    assert ledger.tokens.special == prefix * num_fragments + num_eos


@settings(max_examples=150, deadline=None)
@given(data=st.data(), options=terms())
def test_groups_are_whole_in_one_row_or_dropped(data, options):
    options |= {"max_documents_per_row": None}
    lengths = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=12))
    groups = [data.draw(st.sampled_from([None, "a", "b", "c", "d"])) for _ in lengths]
    records = [
        {**record(document, n), "pair": group}
        for document, (n, group) in enumerate(zip(lengths, groups, strict=True))
    ]
    try:
        rows, ledger = pack(records, **options, group_column="pair", keep_sources=True)
    except UserWarning as warning:
        assert "nothing is left" in str(warning)
        return
    row_of = {document: r for r, row in enumerate(rows) for document in row["document_ids"]}
    assert sum(len(row["document_ids"]) for row in rows) == len(row_of), "a document was cut"
    room = options["max_length"] // options["align"] * options["align"]

    def space(n):
        return -(-n // options["align"]) * options["align"]

    too_long = 0
    for name in ("a", "b", "c", "d"):
        members = [d for d, g in enumerate(groups) if g == name and lengths[d]]
        assert len({row_of.get(d) for d in members}) <= 1
        if sum(space(lengths[d]) for d in members) > room:
            too_long += sum(lengths[d] for d in members)
            assert not any(d in row_of for d in members)
    too_long += sum(
        n for n, g in zip(lengths, groups, strict=True) if g is None and space(n) > room
    )
    assert ledger.tokens.dropped["group_too_long"] == too_long
    assert set(ledger.tokens.dropped) <= {"group_too_long", "row_too_short"}


# Which columns


def test_without_names_every_list_as_long_as_the_tokens_is_packed():
    table = pa.table(
        {
            "input_ids": pa.array([[1, 2], [3]]),
            "scores": pa.array([[0.5, 1.0], [2.0]], pa.large_list(pa.float64())),
            "image_sizes": pa.array([[4, 4], [4, 4]]),
            "spans": pa.array([["a", "b"], ["c"]]),
            "id": pa.array([1, 2]),
        }
    )
    rows = quire.pack_dataset(table, max_length=8)
    assert rows.column_names == ["input_ids", "scores", "document_starts"]


def test_only_a_named_column_is_packed():
    rows = quire.pack_dataset([record(0, 2)], max_length=8, columns=["weight"])
    assert rows.column_names == ["input_ids", "weight", "document_starts"]
    rows = quire.pack_dataset([record(0, 2)], max_length=8, columns=[])
    assert rows.column_names == ["input_ids", "document_starts"]


def test_a_bad_record_does_not_remove_a_column():
    records = [record(0, 3), {**record(1, 2), "input_ids": None}, record(2, 2)]
    rows, ledger = pack(records, max_length=8, max_bad_records=1, strategy="greedy")
    assert rows[0]["weight"] == [0.0, 0.25, 0.5, 50.0, 50.25]
    assert ledger.documents.dropped == {"bad_record": 1}


@pytest.mark.parametrize("name", ["labels", "loss_mask", "token_type_ids"])
@pytest.mark.parametrize("columns", [None, "named"])
def test_another_length_is_an_error_with_the_row_and_both_lengths(name, columns):
    records = [record(0, 3), record(1, 4), record(2, 2)]
    records[1] = {**records[1], name: records[1][name][:-1]}
    options = {"max_length": 8, "columns": columns and [name]}
    with pytest.raises(
        InvalidDocument, match=f"record 1 has 4 input_ids but 3 {name};.*fix the data"
    ):
        pack(records, **options)
    rows, ledger = pack(records, **options, max_bad_records=1, keep_sources=True)
    assert sorted(documents(rows)) == [0, 2]
    assert documents(rows, name)[2] == dict(enumerate(records[2][name]))
    assert (ledger.documents.dropped, ledger.tokens.dropped) == (
        {"bad_record": 1},
        {"bad_record": 4},
    )


@pytest.mark.parametrize("value", [None, [3, None]])
@pytest.mark.parametrize("name", ["labels", "loss_mask", "weight"])
def test_a_null_column_and_a_null_inside_are_bad_records_with_their_tokens(name, value):
    value = [True, None] if name == "loss_mask" and value else value
    records = [record(0, 3), {**record(1, 2), name: value}, record(2, 2)]
    what = "has no" if value is None else "has a null inside its"
    with pytest.raises(InvalidDocument, match=f"record 1 {what} {name}"):
        pack(records, max_length=8, columns=[name])
    rows, ledger = pack(records, max_length=8, columns=[name], max_bad_records=2, keep_sources=True)
    assert sorted(documents(rows, name)) == [0, 2]
    assert ledger.tokens.dropped == {"bad_record": 2}
    assert ledger.tokens.input == 7


def test_many_bad_records_are_counted_once_each():
    records = [{"input_ids": [1, 2], "labels": [1]}, {"input_ids": [3, None], "labels": None}] * 50
    with pytest.raises(InvalidDocument, match="that is bad record 100 and max_bad_records is 99"):
        pack(records, max_length=8, max_bad_records=99)
    rows, ledger = pack([*records, record(0, 1)], max_length=8, max_bad_records=100)
    assert len(rows) == 1
    assert ledger.documents.dropped == {"bad_record": 100}


# What teaches nothing


def labelled(*labels: list[int]) -> list[dict]:
    return [
        {"input_ids": [100 * d + k for k in range(len(given))], "labels": given}
        for d, given in enumerate(labels)
    ]


def test_a_fragment_whose_labels_are_all_masked_is_dropped_and_counted():
    records = labelled([-100] * 4 + [5, -100], [-100] * 3, [-100], [-100, 7])
    rows, ledger = pack(records, max_length=4, strategy="greedy", keep_sources=True)
    assert [(d, offset, ids) for d, offset, ids in fragments(rows)] == [
        (0, 4, [4, 5]),
        (2, 0, [200]),  # one token has no target, whatever its label: it stays
        (3, 0, [300, 301]),
    ]
    assert ledger.tokens.dropped == {"unsupervised": 4 + 3}
    assert ledger.documents.dropped == {"unsupervised": 1}


def test_the_label_of_a_first_token_counts_though_it_is_masked_later():
    rows, ledger = pack(labelled([5, -100, -100]), max_length=4)
    assert len(rows) == 1 and not ledger.tokens.dropped


def test_without_labels_nothing_is_unsupervised():
    records = [{"input_ids": [1, 2], "loss_mask": [0, 0]}]
    rows, _ = pack(records, max_length=4)
    assert rows[0]["loss_mask"] == [0, 0]
    rows, _ = pack(labelled([-100, -100]), max_length=4, columns=[])
    assert rows[0]["input_ids"] == [0, 1]


def test_a_group_is_kept_for_one_trained_member_and_dropped_without_any():
    records = labelled([-100, -100], [1, 2], [-100, -100], [-100, -100])
    for one, group in zip(records, ["a", "a", "b", None], strict=True):
        one["pair"] = group
    rows, ledger = pack(records, max_length=8, group_column="pair", keep_sources=True)
    assert sorted(documents(rows)) == [0, 1]
    assert ledger.documents.dropped == {"unsupervised": 2}


@settings(max_examples=150, deadline=None)
@given(
    labels=st.lists(st.lists(st.sampled_from([-100, -100, 3]), max_size=20), max_size=6),
    options=terms(),
)
def test_exactly_the_fragments_with_a_label_are_kept(labels, options):
    records = labelled(*labels)
    try:
        rows, ledger = pack(records, **options, keep_sources=True)
    except UserWarning as warning:
        assert "nothing is left" in str(warning)
        return
    for document, offset, kept in fragments(rows, "labels"):
        assert any(label != -100 for label in kept) or len(labels[document]) == 1
        assert kept == labels[document][offset : offset + len(kept)]
    if options["overlong"] == "split" and options["min_length"] == 1:
        taught = sum(label != -100 for one in labels for label in one)
        kept = documents(rows, "labels")
        assert taught == sum(v != -100 for places in kept.values() for v in places.values())
    assert ledger.documents.input == len(labels)


def test_labels_of_every_width_give_the_same_rows():
    for kind in (pa.int16(), pa.int64(), pa.float32()):
        table = pa.table(
            {
                "input_ids": [[1, 2], [3, 4]],
                "labels": pa.array([[-100, -100], [3, 4]], pa.list_(kind)),
            }
        )
        rows, ledger = pack(table, max_length=8)
        assert [row["input_ids"] for row in rows] == [[3, 4]]
        assert ledger.tokens.dropped == {"unsupervised": 2}


def test_ids_keep_their_type():
    for kind in (pa.uint8(), pa.int64(), pa.uint32()):
        column = pa.array([[1, 200]], pa.list_(kind))
        rows = quire.pack_dataset(pa.table({"input_ids": column}), max_length=8)
        assert rows["input_ids"].type.value_type == kind


@pytest.mark.parametrize("odd", [{"completion_mask": [1]}, {"completion_mask": None}, {}])
def test_17_a_mask_that_one_record_lacks_is_kept_for_the_others(odd):
    good = [{"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1]}] * 9
    with pytest.raises(InvalidDocument, match=r"record 9 has .*completion_mask"):
        quire.pack_dataset([*good, {"input_ids": [5, 6], **odd}], max_length=8)


def test_padding_is_not_packed():
    records = [
        {"input_ids": [5, 6], "attention_mask": [1, 1]},
        {"input_ids": [7, 8, 0, 0], "attention_mask": [1, 1, 0, 0]},
    ]
    with pytest.raises(InvalidDocument, match="record 1 is padded: its attention_mask has 2 zeros"):
        pack(records, max_length=8)
    rows, ledger = pack(records, max_length=8, max_bad_records=1)
    assert rows == [{"input_ids": [5, 6], "attention_mask": [1, 1], "document_starts": [0]}]
    assert ledger.documents.dropped == {"bad_record": 1}


def test_padding_is_not_packed_if_the_mask_is_left_out():
    records = [
        {"input_ids": [5, 6], "labels": [5, 6], "attention_mask": None},
        {"input_ids": [7, 0], "labels": [7, -100], "attention_mask": [1, 0]},
    ]
    with pytest.raises(InvalidDocument, match="record 1 is padded: its attention_mask has 1 zeros"):
        pack(records, max_length=8, columns=["labels"])
    rows, _ = pack(records, max_length=8, columns=["labels"], max_bad_records=1)
    assert rows == [{"input_ids": [5, 6], "labels": [5, 6], "document_starts": [0]}]


ORDERED = pa.table(
    {
        "input_ids": pa.chunked_array(
            [[[1, 2, 3], []], [[4], [5, 6]], [[7, 8, 9, 10], [11]]], pa.list_(pa.int32())
        ),
        "labels": pa.chunked_array(
            [[[1, 2, -100], []], [[4], [5, 6]], [[7, 8, 9, 10], [11]]], pa.list_(pa.int64())
        ),
        "text": pa.chunked_array([["abc", ""], ["d", "ef"], ["ghij", "k"]]),
    }
)


def of_datasets():
    datasets = pytest.importorskip("datasets")
    plain = datasets.Dataset(ORDERED, fingerprint="ordered")
    shuffled = plain.shuffle(seed=3)
    return {
        "shuffled": shuffled,
        "selected": plain.select([5, 0, 0, 3]),
        "one": plain.select([4, 1]),
        "none": plain.select([]),
        "sliced": shuffled.select(range(1, 4)),
        "concatenated": datasets.concatenate_datasets([shuffled, plain, shuffled]),
        "sharded": shuffled.shard(2, 1),
    }


@pytest.mark.parametrize("few", [8, 1])
@pytest.mark.parametrize("name", of_datasets())
def test_an_indexed_dataset_is_packed_like_its_rows_written_out(name, few, monkeypatch):
    """`datasets` stores an order next to the table: rows are gathered by it, not sliced singly."""
    monkeypatch.setattr("quire.dataset.records._FEW", few)
    dataset = of_datasets()[name]
    written = dataset.with_format("arrow")[:] if len(dataset) else ORDERED[:0]
    for columns in (["input_ids", "labels"], ["text"]):
        tokenizer = "byte" if columns == ["text"] else None
        options = {"max_length": 7, "shuffle": False, "keep_sources": True, "return_ledger": True}
        packed, ledger = quire.pack_dataset(dataset.select_columns(columns), tokenizer, **options)
        expected, same = quire.pack_dataset(written.select(columns), tokenizer, **options)
        assert (packed.to_list(), ledger) == (expected.to_pylist(), same)


def test_nulls_in_an_indexed_dataset_are_bad_records_in_its_order():
    datasets = pytest.importorskip("datasets")
    table = pa.table({"input_ids": [[1, 2], None, [3]]})
    dataset = datasets.Dataset(table, fingerprint="nulls").select([2, 1, 0])
    with pytest.raises(InvalidDocument, match="record 1 has no input_ids"):
        quire.pack_dataset(dataset, max_length=4)
    packed, ledger = quire.pack_dataset(
        dataset, max_length=4, max_bad_records=1, shuffle=False, return_ledger=True
    )
    assert packed["input_ids"][0] == [3, 1, 2] or packed["input_ids"][0] == [1, 2, 3]
    assert ledger.documents.dropped == {"bad_record": 1}
