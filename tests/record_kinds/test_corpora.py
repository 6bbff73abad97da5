"""Corpora of every kind of records are those of `pack_dataset`, and proven against their inputs."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire.corpus.job import shard_seed
from quire.corpus.lengths import corpus_lengths
from quire.corpus.options import CorpusOptions
from quire.errors import InvalidDocument, InvalidOption
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.corpus.corpora import forge, jsonl, pack, rows
from tests.record_kinds import records as made
from tests.tokenizer_files import folder_of, load

LONG = "word " * 70
CASES = {
    "sharegpt": [made.SHAREGPT, {"conversations": made.SHAREGPT["conversations"][1:]}],
    "prompt_completion": [made.COMPLETION, {"prompt": LONG, "completion": LONG}, made.COMPLETION],
    "chat_completion": [made.CHAT_COMPLETION] * 3,
    "instruction": [made.INSTRUCTION, made.NO_INPUT],
    "preference": [made.PAIR, made.IMPLICIT_PAIR, {"prompt": LONG, "chosen": LONG, "rejected": ""}],
    "chat_preference": [made.CHAT_PAIR] * 5,
}
OPTIONS = {"max_length": 100, "partition_size": 1 << 20}


def write(folder, suffix, records):
    path = folder / f"a.{suffix}"
    if suffix == "jsonl":
        return jsonl(path, records)
    pq.write_table(pa.Table.from_pylist(records), path)
    return path


def check(out, inputs, tokenizer):
    return verify_inputs(verify_output(out), inputs, tokenizer)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("tokenizer", ["small-qwen3", "byte"])
def test_a_corpus_has_the_rows_of_pack_dataset_and_is_whole(tmp_path, case, suffix, tokenizer):
    if tokenizer == "byte" and (case.startswith("chat") or case == "sharegpt"):
        return  # it has no chat template
    named = "byte" if tokenizer == "byte" else folder_of(tokenizer)
    path = write(tmp_path, suffix, CASES[case])
    result = pack(path, tmp_path / "out", named, **OPTIONS)
    loaded = "byte" if tokenizer == "byte" else load(tokenizer)
    expected, ledger = quire.pack_dataset(
        CASES[case], loaded, max_length=100, keep_sources=True, return_ledger=True,
        seed=shard_seed(0, 0, 0),
    )  # fmt: skip
    assert rows(tmp_path / "out").to_pylist() == expected.to_pylist()
    assert result.ledger.to_dict() == ledger.to_dict()
    report = check(tmp_path / "out", [path], named)
    assert report.problems == []
    assert report.compared


def test_the_kind_is_recorded_and_an_output_is_resumed_with_it(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [made.COMPLETION])
    pack(path, tmp_path / "out", "byte", **OPTIONS)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["options"]["record_kind"] == "prompt_completion"
    options = {**OPTIONS, "record_kind": "prompt_completion", "resume": True}
    assert pack(path, tmp_path / "out", "byte", **options).was_complete


@pytest.mark.parametrize(
    ("record", "name"), [(made.COMPLETION, "record 2"), (made.PAIR, "record 2 (rejected)")]
)
def test_a_label_that_was_changed_is_found(tmp_path, record, name):
    """With checksums that fit, so that only the inputs tell."""
    path = jsonl(tmp_path / "a.jsonl", [record] * 3)
    pack(path, tmp_path / "out", "byte", **OPTIONS, strategy="greedy")
    (shard,) = (tmp_path / "out" / "data").iterdir()
    table = pq.read_table(shard)
    labels = table["labels"].to_pylist()
    labels[-1][-3] = 7
    column = pa.array(labels, table.schema.field("labels").type)
    table = table.set_column(table.schema.get_field_index("labels"), "labels", column)
    pq.write_table(table, shard)
    data = shard.read_bytes()
    seal = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    forge(tmp_path / "out", lambda manifest: manifest["shards"][0].update(seal))
    report = check(tmp_path / "out", [path], "byte")
    assert any(problem.startswith(f"{name} of input 0: labels") for problem in report.problems)


@pytest.mark.parametrize("case", CASES)
def test_quire_plan_counts_the_rows_that_quire_pack_writes(tmp_path, case):
    path = jsonl(tmp_path / "a.jsonl", CASES[case])
    found = corpus_lengths([path], folder_of("small-qwen3"), CorpusOptions(**OPTIONS))
    result = pack(path, tmp_path / "out", folder_of("small-qwen3"), **OPTIONS)
    emitted = result.ledger.documents.emitted + sum(result.ledger.documents.dropped.values())
    num_each = 1 + ("preference" in case)
    assert len(found.lengths) * num_each == emitted
    if num_each == 2:
        assert int(np.sum(found.lengths <= 100)) * 2 == result.ledger.documents.emitted


def test_a_bad_conversation_has_its_byte_offset(tmp_path):
    bad = {"messages": [{"content": "Hi?"}]}
    path = jsonl(tmp_path / "a.jsonl", [made.MESSAGES, bad])
    where = path.read_bytes().index(b"\n") + 1
    with pytest.raises(InvalidDocument, match=rf"record 1 \(byte {where}\) has a message 0"):
        pack(path, tmp_path / "out", folder_of("small-qwen3"), **OPTIONS)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_records_of_another_kind_name_the_option_to_use(tmp_path, suffix):
    path = write(tmp_path, suffix, [made.MESSAGES])
    problem = "holds messages with role and content: use record_kind='messages'"
    with pytest.raises(InvalidDocument, match=problem):
        pack(path, tmp_path / "out", folder_of("small-qwen3"), record_kind="text", **OPTIONS)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("record", "remedy"),
    [
        ({"id": 7, "body": "A page."}, "if 'body' is what to pack, use text_column='body'"),
        ({"id": "7", "talk": made.MESSAGES["messages"]}, "use messages_column='talk'"),
    ],
)
def test_texts_and_messages_under_another_name_name_the_option_to_use(
    tmp_path, suffix, record, remedy
):
    path = write(tmp_path, suffix, [record] * 2)
    with pytest.raises((InvalidDocument, InvalidOption), match=remedy):
        pack(path, tmp_path / "out", folder_of("small-qwen3"), **OPTIONS)
    with pytest.raises((InvalidDocument, InvalidOption), match=remedy):
        quire.pack_dataset([record] * 2, "byte", max_length=64)


def test_preference_pairs_cannot_be_index_only(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [made.PAIR])
    with pytest.raises(InvalidOption, match="leave index_only out"):
        pack(path, tmp_path / "out", "byte", index_only=True, **OPTIONS)
