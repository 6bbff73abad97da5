"""`quire.view.show` and the rows of live batches."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire.errors import InvalidOption, InvalidRow
from quire.stream import open_stream
from quire.view import show
from quire.view.batches import batch_views

TOKENIZER = quire.ByteTokenizer()
ROWS = [
    {"input_ids": [10, 11, 12, 20, 21], "labels": [-100, 11, 12, -100, -100]}
    | {"document_starts": [0, 3]},
    {"input_ids": [30, 31], "labels": [30, 31], "document_starts": [0]},
]
HOSTILE = "<script>alert(1)</script>\x1b[31m'\"&"


def seen(batch):
    return [(row.input_ids.tolist(), row.spans, row.trained.tolist()) for row in batch_views(batch)]


EXPECTED = [
    ([10, 11, 12, 20, 21], [(0, 3), (3, 5)], [False, True, True, False, False]),
    ([30, 31], [(0, 2)], [False, True]),
]


@pytest.mark.parametrize("attention", ["transformers", "sdpa", "segments", "varlen"])
def test_rows_of_a_collated_batch_are_the_rows_that_went_in(attention):
    collate = DataCollatorForCausalLM(TOKENIZER, attention=attention)
    assert seen(collate(ROWS)) == EXPECTED


def test_a_padding_free_batch_is_one_row_of_all_documents():
    batch = PaddingFreeCollator(return_tensors="np")(ROWS)
    assert seen(batch) == [
        (
            [10, 11, 12, 20, 21, 30, 31],
            [(0, 3), (3, 5), (5, 7)],
            [False, True, True, False, False, False, True],
        )
    ]


def test_padding_of_a_fixed_shape_is_not_shown_as_documents():
    collate = PaddingFreeCollator(return_tensors="np", num_tokens=16, max_length=4)
    (row,) = batch_views(collate(ROWS))
    assert (len(row.starts), row.padding) == (3, 9)


def test_trls_own_batch_is_read_by_its_position_ids():
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    rows = [{"input_ids": [5, 6, 7, 8], "seq_lengths": [3, 1]}, {"input_ids": [9, 4]}]
    rows[1]["seq_lengths"] = [2]
    ((tokens, spans, _),) = seen(collate(rows))
    assert (tokens, spans) == ([5, 6, 7, 8, 9, 4], [(0, 3), (3, 4), (4, 6)])


def test_a_padded_batch_of_transformers_is_read_by_its_mask_on_either_side():
    batch = {
        "input_ids": [[1, 2, 3], [0, 4, 5]],
        "attention_mask": np.array([[1, 1, 1], [0, 1, 1]]),
        "labels": [[1, 2, 3], [-100, 4, 5]],
    }
    views = list(batch_views(batch))
    assert [row.input_ids.tolist() for row in views] == [[1, 2, 3], [4, 5]]
    assert [(row.padding, row.has_starts) for row in views] == [(0, False), (1, False)]


def test_shifted_labels_of_a_stream_mark_the_tokens_that_are_predicted():
    options = {"backend": "local_text", "local_text": "hello", "repeat": False}
    config = {
        "data": {**options, "tokenizer": {"kind": "byte"}},
        "train": {"seq_len": 16, "batch_size": 2},
    }
    with open_stream(config) as stream:
        batch = next(stream)
    first = next(batch_views(batch.to_dict()))
    assert first.trained.tolist() == [False, True, True, True, True, True]
    assert (first.padding, first.note) == (10, "")
    assert "h⟦ello⟧" in str(show(batch, "byte"))


def test_labels_of_other_tokens_than_the_batchs_are_pointed_out():
    (row,) = batch_views({"input_ids": [[5, 6, 7]], "labels": [[-100, 8, 9]]})
    assert "2 of 2 labels are not the token at their place" in row.note


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(0, 3),
    st.data(),
)
def test_every_packed_row_survives_collation(lengths, padding, data):
    total = sum(lengths)
    ids = data.draw(st.lists(st.integers(10, 99), min_size=total, max_size=total))
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    other = {"input_ids": [9] * (total + padding), "document_starts": [0]}
    batch = DataCollatorForCausalLM(TOKENIZER, return_tensors="np", attention="segments")(
        [{"input_ids": ids, "document_starts": starts}, other]
    )
    row = next(batch_views(batch))
    assert (row.input_ids.tolist(), row.starts.tolist(), row.padding) == (ids, starts, padding)
    assert row.trained.sum() == total - len(lengths)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"labels": [[1]]}, "no input_ids"),
        ({"input_ids": [[1, 2], [3]]}, "differ in length"),
        ({"input_ids": [[1, 2]], "labels": [[1]]}, "must be integers of shape"),
        ({"input_ids": [[0.5]]}, "must be integers"),
        ({"input_ids": [[1, 2]], "position_ids": [[0]]}, "position_ids have shape"),
    ],
)
def test_a_batch_that_cannot_be_read_is_an_error(batch, message):
    with pytest.raises(InvalidRow, match=message):
        list(batch_views(batch))


def test_what_is_not_a_batch_is_refused():
    with pytest.raises(InvalidOption, match="a int cannot be shown"):
        show(7)


def test_56_documents_and_file_names_are_text_in_the_html(tmp_path):
    file = tmp_path / "<img src=x>.jsonl"
    file.write_text(json.dumps({"text": HOSTILE}) + "\n")
    quire.pack_corpus([file], tmp_path / "<b>packed", "byte", max_length=64)
    dataset = quire.PackedDataset(tmp_path / "<b>packed")
    for html in (show(dataset)._repr_html_(), dataset._repr_html_()):
        assert "\x1b" not in html
        for text in ("<script", "<img", "<b>packed"):
            assert text not in html
    assert "&lt;script&gt;alert(1)" in show(dataset)._repr_html_()
    assert "&lt;b&gt;packed" in dataset._repr_html_()


def test_html_marks_trained_tokens_and_no_others():
    row = {"input_ids": [100, 101, 102], "labels": [-100, -100, 102], "document_starts": [0]}
    html = show([row], "byte")._repr_html_()
    assert html.count("hsla(130,70%,45%,.35)") == 1
    assert ">c</span>" in html


@pytest.mark.parametrize("kind", ["path", "dataset", "list", "table", "hf", "row"])
def test_show_takes_packed_rows_of_every_kind(tmp_path, kind):
    (tmp_path / "a.jsonl").write_text('{"text": "alpha"}\n{"text": "beta"}\n')
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=64)
    dataset = quire.PackedDataset(tmp_path / "out")
    plain = [{name: values.tolist() for name, values in row.items()} for row in dataset]
    what = {
        "path": tmp_path / "out",
        "dataset": dataset,
        "list": plain,
        "table": pa.Table.from_pylist(plain),
        "hf": dataset.to_datasets(),
        "row": plain[0],
    }[kind]
    shown = str(show(what, "byte"))
    assert "Documents: 2" in shown
    assert "alpha" in shown
    assert ("a.jsonl, record 1" in shown) == (kind in ("path", "dataset"))


def test_plans_and_batches_have_a_picture_for_notebooks():
    plan = quire.make_plan([5, 3, 9], max_length=8)
    html = plan._repr_html_()
    assert html.count("<span") == plan.num_fragments
    assert "document 2, tokens 0-7" in html
    config = {"data": {"backend": "local_text", "local_text": "hi", "tokenizer": {"kind": "byte"}}}
    with open_stream({**config, "train": {"seq_len": 8, "batch_size": 2}}) as stream:
        batch = next(stream)
    assert repr(batch).startswith("Batch(input_ids=int32[1, 2, 8], labels=int32[1, 2, 8]")
    assert "int32 [1, 2, 8]" in batch._repr_html_()
