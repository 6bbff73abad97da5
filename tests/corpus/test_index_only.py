"""Documents and plans are stored separately: another plan makes other rows of the same tokens."""

from __future__ import annotations

import errno
import json
import os
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import fsspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.corpus import index, replan
from quire.corpus.lock import writer_lock
from quire.errors import CorruptFile, InvalidOption, OutputError, OversizedDocument
from quire.packed import PackedDataset
from quire.plan import Plan
from quire.verify.output import verify_output
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.tokenizer_files import folder_of, parameters

ALL = ("input_ids", "document_starts", "document_ids", "document_offsets")


def read(out: Path, plan: str | None = None, columns=ALL) -> list[dict]:
    dataset = PackedDataset(out, plan=plan, columns=columns)
    return [{name: values.tolist() for name, values in row.items()} for row in dataset]


def test_two_documents_and_their_plan(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["abc", "", "de"])
    result = pack(path, tmp_path / "out", max_length=10, index_only=True)
    assert sorted(hashes(tmp_path / "out")) == [
        "data/shard-00000-000.parquet",
        "manifest.json",
        "plans/exact_fit-10.arrow",
    ]
    assert pq.read_table(tmp_path / "out" / "data").to_pylist() == [
        {"document_id": 0, "length": 4, "input_ids": [100, 101, 102, 2]},
        {"document_id": 2, "length": 3, "input_ids": [103, 104, 2]},
    ]
    (row,) = read(tmp_path / "out")
    assert row == {
        "input_ids": [1, 100, 101, 102, 2, 1, 103, 104, 2],
        "document_starts": [0, 5],
        "document_ids": [0, 2],
        "document_offsets": [0, 0],
    }
    assert (result.plan, result.num_rows, result.utilization) == ("exact_fit-10", 1, 0.7)
    assert result.ledger.documents.dropped == {"empty": 1}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"strategy": "wrapped"},
        {"strategy": "greedy", "overlong": "fill"},
        {"strategy": "first_fit", "overlong": "fill", "stride": 3},
        {"overlong": "truncate", "add_bos": False},
        {"overlong": "truncate_left"},
        {"overlong": "drop"},
        {"stride": 5, "add_eos": False},
        {"min_length": 12, "drop_longer_than": 30, "seed": 7},
        {"shuffle": False, "max_documents_per_row": 2},
    ],
)
def test_rows_are_those_of_a_plain_output_of_one_partition(tmp_path, options):
    path = jsonl(tmp_path / "a.jsonl", [*texts(120), "x" * 100])
    plain = pack(path, tmp_path / "plain", **options)
    indexed = pack(path, tmp_path / "indexed", index_only=True, partition_size=700, **options)
    assert read(tmp_path / "indexed") == read(tmp_path / "plain")
    assert indexed.ledger == plain.ledger
    assert indexed.num_tokens == plain.num_tokens
    assert len(indexed.manifest["shards"]) > 5
    assert verify_output(tmp_path / "indexed").problems == []


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text(max_size=40), min_size=1, max_size=20),
    st.sampled_from(["best_fit", "wrapped", "first_fit", "greedy"]),
    st.sampled_from(["split", "fill", "truncate"]),
    st.integers(0, 4),
    st.booleans(),
)
def test_a_plan_gives_the_rows_of_packing_again(values, strategy, cut, stride, bos):
    terms = {"max_length": 11, "strategy": strategy, "overlong": cut, "stride": stride}
    with TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        path = jsonl(folder / "a.jsonl", values)
        pack(path, folder / "plain", add_bos=bos, **terms)
        pack(path, folder / "indexed", add_bos=bos, index_only=True, partition_size=200)
        replan(folder / "indexed", name="other", **terms)
        assert read(folder / "indexed", "other") == read(folder / "plain")


def labelled(tmp_path: Path) -> Path:
    records = [
        {"input_ids": [n, n + 1, n + 2], "labels": [-100, n + 1, n + 2] if n % 3 else [-100] * 3}
        for n in range(5, 60)
    ]
    long = {"input_ids": list(range(5, 45)), "labels": [-100] * 20 + list(range(5, 25))}
    return jsonl(tmp_path / "a.jsonl", [*records, long, {"input_ids": [9], "labels": [-100]}])


@pytest.mark.parametrize("options", [{}, {"overlong": "fill"}, {"strategy": "wrapped"}])
def test_labels_are_packed_and_fragments_without_trained_ones_are_left_out(tmp_path, options):
    path = labelled(tmp_path)
    columns = (*ALL[:1], "labels", *ALL[1:])
    plain = pack(path, tmp_path / "plain", None, pretokenized=True, **options)
    size = {"partition_size": 600, "index_only": True}
    result = pack(path, tmp_path / "indexed", None, pretokenized=True, **size, **options)
    assert len(result.manifest["shards"]) > 3
    assert result.ledger == plain.ledger
    assert result.ledger.tokens.dropped["unsupervised"] > 20
    assert read(tmp_path / "indexed", columns=columns) == read(tmp_path / "plain", columns=columns)
    assert verify_output(tmp_path / "indexed").problems == []


def test_a_shard_whose_documents_are_all_dropped_has_no_fragment_to_judge(tmp_path):
    long, short = list(range(5, 25)), [5, 6, 7]
    files = [
        jsonl(tmp_path / f"{n}.jsonl", [{"input_ids": ids, "labels": ids}] * 3)
        for n, ids in enumerate([short, long, short])
    ]
    options = {"max_length": 10, "overlong": "drop", "pretokenized": True}
    plain = pack(files, tmp_path / "plain", None, **options)
    size = {"partition_size": 100, "index_only": True}
    result = pack(files, tmp_path / "indexed", None, **size, **options)
    assert len(result.manifest["shards"]) > 3, "some hold only documents of the second file"
    assert result.ledger == plain.ledger
    assert result.ledger.documents.dropped == {"too_long": 3}


def test_a_plan_of_an_output_in_a_store_is_that_of_a_local_one(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(30))
    local = pack(path, tmp_path / "out", index_only=True)
    fsspec.filesystem("memory").pipe("/planned-in-a-store/a.jsonl", path.read_bytes())
    uri = "memory://planned-in-a-store/out"
    try:
        remote = pack("memory://planned-in-a-store/a.jsonl", uri, index_only=True)
        assert remote.manifest["plans"] == local.manifest["plans"]
        again, expected = (replan(out, max_length=9) for out in (uri, tmp_path / "out"))
        assert again.manifest["plans"] == expected.manifest["plans"]
    finally:
        fsspec.filesystem("memory").rm("/planned-in-a-store", recursive=True)


@pytest.mark.parametrize("name", parameters("qwen3"))
def test_conversations_can_be_planned_again_with_their_labels(tmp_path, name):
    folder = folder_of(name)
    turns = [("user", "1+1?"), ("assistant", "2, as ever since there were numbers")]
    messages = [{"role": role, "content": content} for role, content in turns]
    path = jsonl(tmp_path / "a.jsonl", [{"messages": messages[: 1 + n % 2]} for n in range(9)])
    options = {"max_length": 64, "messages_column": "messages"}
    plain = pack(path, tmp_path / "plain", folder, **options)
    pack(path, tmp_path / "index", folder, **options | {"max_length": 32}, index_only=True)
    result = replan(tmp_path / "index", max_length=64)
    columns = ("input_ids", "labels", "document_starts", "document_ids")
    found = read(tmp_path / "index", "exact_fit-64", columns=columns)
    assert found == read(tmp_path / "plain", columns=columns)
    assert result.ledger == plain.ledger
    assert result.ledger.documents.dropped["unsupervised"] == 5
    assert verify_output(tmp_path / "index").problems == []


def test_the_plan_is_over_all_partitions_and_fills_rows_better(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(200))
    plain = pack(path, tmp_path / "plain", max_length=64, partition_size=300)
    indexed = pack(path, tmp_path / "i", max_length=64, partition_size=300, index_only=True)
    assert indexed.ledger.tokens.emitted == plain.ledger.tokens.emitted
    assert indexed.num_rows < plain.num_rows


def test_worker_counts_and_resume_give_the_same_bytes(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(60))
    for workers in (1, 2):
        out = tmp_path / str(workers)
        pack(path, out, partition_size=600, workers=workers, index_only=True)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")
    again = pack(path, tmp_path / "1", partition_size=600, index_only=True, resume=True)
    assert again.was_complete
    with pytest.raises(OutputError, match=r"options\.index_only is True there and False here"):
        pack(path, tmp_path / "1", partition_size=600, resume=True)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")


def test_replanning_reads_no_input_and_moves_no_token(tmp_path, monkeypatch):
    path = jsonl(tmp_path / "a.jsonl", texts(60))
    out = tmp_path / "out"
    pack(path, out, partition_size=600, index_only=True)
    before = hashes(out)
    path.unlink()
    asked = []
    real = pq.read_table

    def reading(file, columns=None, **options):
        asked.append(columns)
        return real(file, columns=columns, **options)

    monkeypatch.setattr(index.pq, "read_table", reading)
    result = replan(out, max_length=64, strategy="wrapped")
    assert {tuple(columns) for columns in asked} == {("length",)}
    assert (result.plan, result.was_complete) == ("wrapped-64", False)
    after = hashes(out)
    assert {n: h for n, h in after.items() if n in before and n != "manifest.json"} == {
        n: h for n, h in before.items() if n != "manifest.json"
    }
    assert after.keys() - before.keys() == {"plans/wrapped-64.arrow"}
    assert verify_output(out).problems == []
    assert verify_output(out).plans == 2


def test_options_that_are_not_given_stay_as_the_corpus_was_packed(tmp_path):
    out = tmp_path / "out"
    pack(
        jsonl(tmp_path / "a.jsonl", texts(60)), out, index_only=True, stride=2, min_length=3, seed=7
    )
    replan(out, max_length=32)
    entries = {e["name"]: e for e in json.loads((out / "manifest.json").read_text())["plans"]}
    first, second = entries["exact_fit-16"]["options"], entries["exact_fit-32"]["options"]
    assert second == first | {"max_length": 32}
    assert (first["stride"], first["min_length"], first["seed"]) == (2, 3, 7)
    assert Plan.load(out / "plans" / "exact_fit-32.arrow").options.prefix == 1


def test_an_equal_plan_is_not_changed_and_another_of_its_name_is_refused(tmp_path):
    out = tmp_path / "out"
    pack(jsonl(tmp_path / "a.jsonl", texts(60)), out, index_only=True)
    replan(out, max_length=32)
    before = hashes(out)
    assert replan(out, max_length=32).was_complete
    assert replan(out).was_complete, "that is the plan it was packed with"
    with pytest.raises(OutputError, match=r"another plan 'exact_fit-32': seed is 0 there"):
        replan(out, max_length=32, seed=1)
    assert hashes(out) == before
    assert replan(out, max_length=32, seed=1, name="seed-1").plan == "seed-1"
    assert PackedDataset(out).plans == ["exact_fit-16", "exact_fit-32", "seed-1"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_lenght": 8}, "unknown option of a plan 'max_lenght'; did you mean 'max_length'"),
        ({"drop_longer_than": 8}, "unknown option of a plan 'drop_longer_than'"),
        ({"add_bos": False}, "unknown option of a plan 'add_bos'"),
        ({"strategy": "bestfit"}, "did you mean 'best_fit'"),
        ({"name": "../evil"}, r"a plan cannot be named '\.\./evil'"),
        ({"name": ".hidden"}, "a plan cannot be named"),
        ({"name": ""}, "a plan cannot be named"),
    ],
)
def test_mistakes_are_errors_and_change_nothing(tmp_path, change, message):
    out = tmp_path / "out"
    pack(jsonl(tmp_path / "a.jsonl", texts(9)), out, index_only=True)
    before = hashes(out)
    with pytest.raises(InvalidOption, match=message):
        replan(out, **change)
    assert hashes(out) == before


def test_a_document_that_does_not_fit_a_new_plan_is_named_by_file_and_record(tmp_path):
    jsonl(tmp_path / "a.jsonl", ["", "abc"])
    jsonl(tmp_path / "b.jsonl", ["", "x" * 99])
    out = tmp_path / "out"
    pack(tmp_path / "*.jsonl", out, index_only=True)
    with pytest.raises(OversizedDocument, match=r"^b\.jsonl: record 1 has 100 tokens but a row"):
        replan(out, overlong="error", name="strict")
    assert replan(out, overlong="error", max_length=200).num_rows == 1


def test_only_an_index_only_output_can_be_planned_again(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", texts(9))
    pack(path, tmp_path / "plain")
    before = hashes(tmp_path / "plain")
    with pytest.raises(InvalidOption, match="holds packed rows, not documents"):
        replan(tmp_path / "plain", max_length=8)
    with pytest.raises(InvalidOption, match=r"has no manifest\.json"):
        replan(tmp_path, max_length=8)
    assert hashes(tmp_path / "plain") == before
    with pytest.raises(InvalidOption, match="leave keep_sources on"):
        pack(path, tmp_path / "other", index_only=True, keep_sources=False)
    records = jsonl(tmp_path / "b.jsonl", [{"input_ids": [5], "length": [1]}])
    with pytest.raises(InvalidOption, match="has its own column 'length'"):
        pack(records, tmp_path / "c", None, index_only=True, pretokenized=True, columns=["length"])


def test_a_shard_that_does_not_hold_what_the_manifest_says_is_not_planned(tmp_path):
    out = tmp_path / "out"
    pack(jsonl(tmp_path / "a.jsonl", texts(9)), out, index_only=True)
    shard = out / "data" / "shard-00000-000.parquet"
    table = pq.read_table(shard)
    pq.write_table(table.slice(1), shard)
    with pytest.raises(CorruptFile, match=r"documents with \d+ tokens, but the manifest says"):
        replan(out, max_length=8)
    shard.write_bytes(b"PAR1")
    with pytest.raises(CorruptFile, match="cannot be read"):
        replan(out, max_length=8)


def test_a_manifest_that_was_changed_is_neither_planned_from_nor_rewritten(tmp_path):
    out = tmp_path / "out"
    pack(jsonl(tmp_path / "a.jsonl", texts(20)), out, index_only=True)
    whole = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(whole.replace('"stride": 0', '"stride": 1'))
    before = hashes(out)
    with pytest.raises(CorruptFile, match=r"but its content has '\w{64}': it was damaged or ch"):
        quire.replan(out, max_length=64)
    assert hashes(out) == before
    (out / "manifest.json").write_text(whole)
    assert verify_output(quire.replan(out, max_length=64).path).problems == []


def test_only_empty_documents_give_a_plan_without_rows(tmp_path):
    with pytest.warns(UserWarning, match="has no rows"):
        pack(jsonl(tmp_path / "a.jsonl", ["", ""]), tmp_path / "out", index_only=True)
    assert read(tmp_path / "out") == []
    assert replan(tmp_path / "out", max_length=99).num_rows == 0
    assert verify_output(tmp_path / "out").problems == []


def test_overlong_documents_are_cut_only_by_the_plan(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["a" * 5000, "b"])
    pack(path, tmp_path / "out", index_only=True)
    stored = pq.read_table(tmp_path / "out" / "data")
    assert stored["length"].to_pylist() == [5001, 2]
    assert replan(tmp_path / "out", max_length=8192).num_rows == 1


def test_replan_is_a_public_name():
    assert quire.replan is replan


@pytest.mark.parametrize("again", ["replan", "resume"])
def test_a_plan_that_never_reached_the_manifest_is_removed(tmp_path, again):
    path, out = jsonl(tmp_path / "a.jsonl", texts(9)), tmp_path / "out"
    pack(path, out, index_only=True)
    before = hashes(out)
    (out / "plans" / "exact_fit-99.arrow").write_bytes(b"a killed writer was here")
    (out / "plans" / ".exact_fit-99.arrow.1.tmp").write_bytes(b"and here")
    assert "plans/exact_fit-99.arrow exists" in " ".join(verify_output(out).problems)
    if again == "replan":
        assert replan(out).was_complete
    else:
        assert pack(path, out, index_only=True, resume=True).was_complete
    assert hashes(out) == before


def test_44_replan_is_refused_while_a_writer_holds_the_lock(tmp_path):
    path, out = jsonl(tmp_path / "a.jsonl", texts(60)), tmp_path / "out"
    pack(path, out, index_only=True)
    with (
        writer_lock(out / ".quire", out),
        pytest.raises(OutputError, match="is being written by another process"),
    ):
        replan(out, max_length=8)
    assert replan(out, max_length=8).num_rows


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_39_a_full_disk_keeps_existing_plans(tmp_path, monkeypatch, code):
    path, out = jsonl(tmp_path / "a.jsonl", texts(60)), tmp_path / "out"
    pack(path, out, index_only=True)
    before = hashes(out)

    def fail(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match=os.strerror(code)):
        replan(out, max_length=8)
    monkeypatch.undo()
    assert hashes(out) == before
    assert replan(out, max_length=8).num_rows
