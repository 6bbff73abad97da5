"""``truncate_to`` cuts documents before specials are added, on every path that packs text."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.errors import InvalidOption
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output

RECORDS = [{"text": "abcdef"}, {"text": "gh"}, {"text": ""}, {"text": "ijk"}]
A, G, J = (ord(letter) + 3 for letter in "agi")
ROW = [1, A, A + 1, A + 2, 2, 1, J, J + 1, J + 2, 2, 1, G, G + 1, 2]


def test_documents_are_cut_and_end_with_eos():
    rows, ledger = quire.pack_dataset(
        RECORDS, "byte", max_length=16, truncate_to=3, return_ledger=True
    )
    assert rows.to_pylist() == [{"input_ids": ROW, "document_starts": [0, 5, 10]}]
    ledger.check()
    assert ledger.tokens.dropped == {"truncated": 3}
    assert ledger.documents.dropped == {"empty": 1}


def test_a_corpus_has_the_same_rows_and_is_proven_complete(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{r["text"]}"}}\n' for r in RECORDS))
    result = quire.pack_corpus(
        [tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=16, truncate_to=3
    )
    assert pq.read_table(tmp_path / "out" / "data")["input_ids"].to_pylist() == [ROW]
    assert result.manifest["options"]["truncate_to"] == 3
    assert result.ledger.tokens.dropped == {"truncated": 3}
    report = verify_inputs(verify_output(tmp_path / "out"), [str(tmp_path / "a.jsonl")], "byte")
    assert report.problems == []
    assert report.ok


def test_long_documents_are_dropped_before_they_are_cut():
    rows, ledger = quire.pack_dataset(
        RECORDS, "byte", max_length=16, truncate_to=3, drop_longer_than=5, return_ledger=True
    )
    assert rows["document_starts"].to_pylist() == [[0, 5]]
    assert ledger.tokens.dropped == {"too_long": 6}


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        ([{"input_ids": [5, 6, 7]}], {}),
        ([{"messages": [{"role": "user", "content": "x"}]}], {"messages_column": "messages"}),
    ],
)
def test_only_text_can_be_cut(dataset, options):
    with pytest.raises(InvalidOption, match="truncate_to=2 is only for text"):
        quire.pack_dataset(dataset, max_length=8, truncate_to=2, **options)


@pytest.mark.filterwarnings("ignore:pack_dataset dropped")
@given(
    st.lists(st.text("abc", max_size=12), min_size=1, max_size=6),
    st.integers(1, 13),
    st.booleans(),
    st.booleans(),
)
def test_every_token_is_emitted_or_counted(texts, limit, add_bos, add_eos):
    options = {"max_length": 5, "add_bos": add_bos, "add_eos": add_eos, "return_ledger": True}
    rows, ledger = quire.pack_dataset(
        [{"text": text} for text in texts], "byte", truncate_to=limit, **options
    )
    ledger.check()
    cut = [{"text": text[:limit]} for text in texts]
    expected, _ = quire.pack_dataset(cut, "byte", **options)
    assert rows.equals(expected)
    assert ledger.tokens.dropped["truncated"] == sum(max(0, len(t) - limit) for t in texts)
