"""The manifest: shards, bad records, and the description of headers that differ."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

import quire
from quire.corpus.commits import Commit
from quire.corpus.corpus import Corpus
from quire.corpus.encoding import make_encoder
from quire.corpus.inputs import manifest_entry
from quire.corpus.manifest import (
    differences,
    make_header,
    make_index_manifest,
    make_manifest,
    require_same,
    with_first_plan,
    write_bad_records,
)
from quire.corpus.options import CorpusOptions
from quire.errors import OutputError
from quire.formats.files import InputFile
from quire.formats.fingerprints import FINGERPRINT
from quire.formats.format import BadRecord
from quire.ledger import Ledger, LedgerImbalance, Tally, TokenTally
from quire.text import ByteTokenizer


def ledger_of(tokens: int) -> Ledger:
    return Ledger(
        documents=Tally(input=1, emitted=1), tokens=TokenTally(input=tokens, emitted=tokens)
    )


def commit_of(partition: int, tokens: int, *bad: BadRecord) -> Commit:
    return Commit(
        run="run",
        partition=partition,
        piece=0,
        last=True,
        sha256=f"hash {partition}",
        size=100 + partition,
        rows=2 + partition,
        tokens=tokens,
        content=tokens - 1,
        ledger=ledger_of(tokens),
        bad=bad,
    )


def shard_of(partition: int, tokens: int, records: str) -> dict:
    return {
        "file": f"data/shard-0000{partition}-000.parquet",
        "partition": partition,
        "sha256": f"hash {partition}",
        "bytes": 100 + partition,
        records: 2 + partition,
        "tokens": tokens,
        "content": tokens - 1,
        "ledger": ledger_of(tokens).to_dict(),
    }


def file_of(number: int, name: str) -> InputFile:
    return InputFile(
        number=number,
        path=Path(name),
        name=name,
        size=1,
        fingerprint="",
        changed_at=0,
    )


COMMITS = [commit_of(0, 7), commit_of(1, 5)]


# What it says


@pytest.mark.parametrize(("index_only", "name"), [(False, "quire.packed"), (True, "quire.indexed")])
def test_the_header_is_all_that_determines_the_bytes(index_only, name):
    options = CorpusOptions(max_length=8, index_only=index_only)
    file = file_of(0, "a.jsonl")
    corpus = Corpus(files=(file,), options=options, columns={"labels": "int32"})
    assert make_header(corpus, {"kind": "byte"}) == {
        "format": {
            "name": name,
            "version": 3,
            "quire": quire.__version__,
            "pyarrow": pa.__version__,
        },
        "options": options.to_dict(),
        "tokenizer": {"kind": "byte"},
        "columns": {"labels": "int32"},
        "fingerprint": FINGERPRINT,
        "inputs": [manifest_entry(file)],
    }


def test_the_manifest_of_rows_sums_its_shards():
    assert make_manifest({"options": {}}, COMMITS, {"count": 0}) == {
        "options": {},
        "rows": 5,
        "tokens": 12,
        "content": 10,
        "ledger": (ledger_of(7) + ledger_of(5)).to_dict(),
        "bad_records": {"count": 0},
        "shards": [shard_of(0, 7, "rows"), shard_of(1, 5, "rows")],
    }


def test_a_ledger_that_does_not_balance_gives_no_manifest():
    lost = Ledger(tokens=TokenTally(input=1))
    with pytest.raises(LedgerImbalance):
        make_manifest({}, [Commit(**{**fields_of(COMMITS[0]), "ledger": lost})], {})


def fields_of(commit: Commit) -> dict:
    return {name: getattr(commit, name) for name in Commit.__slots__}


def test_the_manifest_of_documents_has_the_rows_of_its_first_plan():
    plan = {"rows": 9, "tokens": 12, "content": 10, "ledger": {}, "file": "plans/a.arrow"}
    options = CorpusOptions(max_length=8, add_bos=True)
    empty = make_encoder(options, ByteTokenizer(), {}).documents()
    manifest = make_index_manifest({"options": {}}, COMMITS, {"count": 0}, empty)
    assert with_first_plan(manifest, plan) == {
        "options": {},
        "rows": 9,
        "tokens": 12,
        "content": 10,
        "ledger": {},
        "documents": {
            "count": 5,
            "tokens": 12,
            "opening": 1,
            "end_with_eos": True,
            "has_labels": False,
        },
        "plans": [plan],
        "bad_records": {"count": 0},
        "shards": [shard_of(0, 7, "documents"), shard_of(1, 5, "documents")],
    }


def test_bad_records_are_listed_by_position_and_reason(tmp_path):
    files = [file_of(0, "a.jsonl"), file_of(1, "b.jsonl")]
    bad = [
        BadRecord(file=1, record=3, offset=None, reason="is no text"),
        BadRecord(file=0, record=9, offset=80, reason="is no JSON"),
        BadRecord(file=0, record=2, offset=20, reason="is no JSON"),
    ]
    said = write_bad_records(tmp_path, [commit_of(0, 7, *bad), commit_of(1, 5)], files)
    data = (
        b'{"file": "a.jsonl", "file_number": 0, "record": 2, "byte_offset": 20, '
        b'"reason": "is no JSON"}\n'
        b'{"file": "a.jsonl", "file_number": 0, "record": 9, "byte_offset": 80, '
        b'"reason": "is no JSON"}\n'
        b'{"file": "b.jsonl", "file_number": 1, "record": 3, "byte_offset": null, '
        b'"reason": "is no text"}\n'
    )
    assert (tmp_path / "bad_records.jsonl").read_bytes() == data
    digest = hashlib.sha256(data).hexdigest()
    assert said == {"count": 3, "file": "bad_records.jsonl", "sha256": digest}


def test_no_list_of_bad_records_is_written_if_there_are_none(tmp_path):
    assert write_bad_records(tmp_path, COMMITS, []) == {"count": 0}
    assert not list(tmp_path.iterdir())


# Terms that differ


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b is 1 there and 2 here"]),
        ({"b": 1, "a": 1}, {"a": 2}, ["a is 1 there and 2 here", "b is 1 there and None here"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a has 2 entries there and 1 here"]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, ["a[1].b is 2 there and 3 here"]),
        ({"a": [1]}, {"a": {"b": 1}}, ["a is [1] there and {'b': 1} here"]),
        ({"a": "x" * 99}, {"a": 1}, [f"a is '{'x' * 79} there and 1 here"]),
    ],
)
def test_every_field_that_differs_is_named(there, here, words):
    assert list(differences(there, here)) == words


def test_a_run_with_other_options_is_refused_with_the_first_ten_differences(tmp_path):
    assert require_same(tmp_path, {"a": [1, 2]}, {"a": (1, 2)}) == {"a": [1, 2]}  # as JSON
    with pytest.raises(OutputError) as raised:
        require_same(Path("out"), {"a": 1, "b": 1}, {"a": 1, "b": 2})
    assert str(raised.value) == (
        "out was begun with other inputs or options: b is 1 there and 2 here; resume with "
        "those, or choose a new output"
    )
    for count, end in [(10, ""), (11, "; ...")]:
        names = "abcdefghijk"[:count]
        with pytest.raises(OutputError) as raised:
            require_same(Path("out"), dict.fromkeys(names, 1), dict.fromkeys(names, 2))
        shown = "; ".join(f"{name} is 1 there and 2 here" for name in "abcdefghij")
        assert f"options: {shown}{end}; resume with those" in str(raised.value)
