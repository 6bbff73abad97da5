"""Streams read records as people have them, with the ids and labels of `pack_dataset`."""

from __future__ import annotations

import json
import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

import quire
from quire.errors import InvalidDocument, InvalidOption, InvalidState
from quire.stream import open_stream
from quire.stream.packers.packer import Window, windows_from_json, windows_to_json
from tests.record_kinds import records as made
from tests.stream.inputs import same, take
from tests.tokenizer_files import load

KINDS = {
    kind: records
    for kind, records in made.KINDS.items()
    if kind not in ("text", "tokens", "preference")
}
CASES = [(kind, record) for kind, records in KINDS.items() for record in records]
ONE = {"max_length": 256, "batch_size": 1, "repeat": False, "mask_boundary_loss": False}


def as_jsonl(folder, records):
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return {"files": str(path)}


def as_parquet(folder, records):
    path = folder / "a.parquet"
    pq.write_table(pa.Table.from_pylist(records), path)
    return {"files": str(path)}


def as_dataset(folder, records):
    del folder
    return {"source": Dataset.from_list(records).to_iterable_dataset()}


def as_generator(folder, records):
    """A dataset that does not know its columns."""
    source = as_dataset(folder, records)["source"]
    return {"source": source.map(lambda record: record)}


@pytest.mark.parametrize("form", [as_jsonl, as_parquet, as_dataset, as_generator])
@pytest.mark.parametrize("tokenizer", ["small-qwen3", "byte"])
@pytest.mark.parametrize(("kind", "record"), CASES)
def test_a_record_has_the_ids_and_labels_of_pack_dataset(tmp_path, kind, record, tokenizer, form):
    tokenizer = load(tokenizer) if tokenizer != "byte" else tokenizer
    is_chat = any(isinstance(value, list) for value in record.values())
    if tokenizer == "byte" and is_chat:
        return  # messages need a chat template
    rows = quire.pack_dataset([record], tokenizer, max_length=400)
    (row,) = getattr(rows, "data", rows).to_pylist()
    options = {**ONE, "max_length": 400}
    with open_stream(**form(tmp_path, [record]), tokenizer=tokenizer, **options) as stream:
        (batch,) = take(stream)
        assert stream.options.record_kind == kind
        assert stream.ledger.check().tokens.trained == (batch.labels != -100).sum()
    length = len(row["input_ids"])
    assert batch.attention_mask.sum() == length
    assert batch.input_ids[0, 0, :length].tolist() == row["input_ids"]
    assert batch.labels[0, 0, : length - 1].tolist() == row["labels"][1:]


def test_bos_and_eos_of_completions_are_those_of_pack_dataset(tmp_path):
    for record in (made.COMPLETION, {"prompt": "", "completion": "ab"}):
        rows = quire.pack_dataset([record], "byte", max_length=64, add_bos=True)
        (row,) = rows.to_pylist()
        options = {**ONE, "tokenizer": "byte", "add_bos": True}
        with open_stream(**as_jsonl(tmp_path, [record]), **options) as stream:
            (batch,) = take(stream)
            assert stream.ledger.check().tokens.special == 2
        length = len(row["input_ids"])
        assert batch.input_ids[0, 0, :length].tolist() == row["input_ids"]
        assert batch.labels[0, 0, : length - 1].tolist() == row["labels"][1:]


def many(count):
    return [
        {"prompt": f"question {n} " * (n % 5), "completion": f"answer {n} " * (1 + n % 7)}
        for n in range(count)
    ]


@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("strategy", ["wrapped", "first_fit", "online"])
def test_labels_continue_exactly_from_a_state(tmp_path, strategy, shuffle, ahead):
    options = {
        **as_jsonl(tmp_path, many(60)),
        "tokenizer": "byte",
        "max_length": 40,
        "batch_size": 2,
        "strategy": strategy,
        "buffer_size": 7,
        "shuffle": shuffle,
        "shuffle_buffer_size": 9,
        "prefetch": ahead,
        "repeat": False,
    }
    with open_stream(**options) as stream:
        states, batches = [json.dumps(stream.state_dict())], []
        for batch in stream:
            batches.append(batch)
            states.append(json.dumps(stream.state_dict()))
        ledger = stream.ledger.check()
    assert len(batches) > 20 and (np.concatenate([b.labels for b in batches]) == -100).any()
    assert sum((batch.labels != -100).sum() for batch in batches) == ledger.tokens.trained
    for number in range(0, len(states), 7):
        with open_stream(**options) as stream:
            stream.load_state_dict(json.loads(states[number]))
            assert same(take(stream), batches[number:])
            assert stream.ledger == ledger


def test_the_marks_of_a_saved_window_are_read_back_or_refused():
    window = Window(np.array([~7, 5, ~0, 9], np.int32), (1, 3), 2, 2)
    saved = json.loads(json.dumps(windows_to_json([window])))
    (read,) = windows_from_json(saved, 4, 10)
    assert read.tokens.tolist() == window.tokens.tolist()
    for wrong in ("", "AAAA", "?"):
        tokens = {**saved["tokens"], "untrained": wrong}
        with pytest.raises(InvalidState, match="untrained"):
            windows_from_json({**saved, "tokens": tokens}, 4, 10)


def test_a_document_without_an_answer_is_dropped_and_counted(tmp_path):
    silent = {"messages": [made.HI]}
    records = as_jsonl(tmp_path, [made.MESSAGES, silent, made.MESSAGES])
    with open_stream(**records, tokenizer=load("small-qwen3"), **ONE) as stream:
        take(stream)
        ledger = stream.ledger.check()
    assert ledger.documents.dropped == {"unsupervised": 1}
    expected = quire.pack_dataset(
        [made.MESSAGES, silent, made.MESSAGES],
        load("small-qwen3"),
        max_length=256,
        return_ledger=True,
    )[1]
    assert ledger.documents == expected.documents
    assert ledger.tokens.dropped == expected.tokens.dropped


def test_the_kind_is_said_recorded_and_compared(tmp_path, caplog):
    files = as_jsonl(tmp_path, [{**made.INSTRUCTION, "text": "Hello."}])
    with (
        caplog.at_level(logging.INFO, "quire"),
        open_stream(**files, tokenizer="byte", **ONE) as text,
        open_stream(**files, tokenizer="byte", record_kind="instruction", **ONE) as other,
    ):
        (said,) = caplog.messages
        assert "record_kind='text'" in said and "record_kind='instruction'" in said
        assert text.options.record_kind == "text" and text.ledger.tokens.trained is None
        assert "record_kind" not in text.state_dict()["options"]  # as in states without it
        state = other.state_dict()
        assert state["options"]["record_kind"] == "instruction"
        with pytest.raises(InvalidState, match=r"record_kind \(saved 'instruction', now 'text'\)"):
            text.load_state_dict(state)
        assert len(take(other)) == 1


@pytest.mark.parametrize("form", [as_jsonl, as_parquet, as_generator])
@pytest.mark.parametrize(
    ("kind", "record", "problem"),
    [
        ("text", made.SHAREGPT, "holds ShareGPT conversations: use record_kind='sharegpt'"),
        ("messages", made.COMPLETION, "completions: use record_kind='prompt_completion'"),
        ("prompt_completion", made.INSTRUCTION, "outputs: use record_kind='instruction'"),
        ("instruction", made.TEXT, "holds text: use record_kind='text'"),
    ],
)
def test_a_record_of_another_kind_names_the_option(tmp_path, form, kind, record, problem):
    given = {"tokenizer": load("small-qwen3"), "record_kind": kind, **ONE}
    with (
        open_stream(**form(tmp_path, [record]), **given) as stream,
        pytest.raises(InvalidDocument) as caught,
    ):
        next(stream)
    assert str(caught.value).endswith(problem)


@pytest.mark.parametrize(
    ("records", "options", "problem"),
    [
        ([made.PAIR], {}, "record_kind='preference' is not for streams"),
        ([made.TEXT], {"record_kind": "tokens"}, "record_kind='tokens' is not for these sources"),
        ([made.COMPLETION], {"truncate_to": 3}, "truncate_to cuts text"),
        ([made.MESSAGES], {"tokenizer": "byte"}, "chat template"),
    ],
)
def test_what_streams_cannot_read_is_an_error_when_they_are_opened(
    tmp_path, records, options, problem
):
    with pytest.raises(InvalidOption, match=problem):
        open_stream(**as_jsonl(tmp_path, records), **{"tokenizer": "byte", **ONE, **options})


def test_a_template_that_writes_the_date_needs_one(tmp_path):
    dated = load("small-qwen3", trust_remote_code=False)
    template = dated.chat_template
    try:
        dated.chat_template = "{{ strftime_now('%Y') }} " + str(template)
        given = {**as_jsonl(tmp_path, [made.MESSAGES]), "tokenizer": dated, **ONE}
        with pytest.raises(InvalidOption, match="chat_date is missing: the chat template writes"):
            open_stream(**given)
        with open_stream(**given, chat_date="2026-11-18") as stream:
            (batch,) = take(stream)
            assert stream.state_dict()["options"]["chat_date"] == "2026-11-18"
        assert dated.decode(batch.input_ids[0, 0]).startswith("2026<")
    finally:
        dated.chat_template = template


def test_each_source_of_a_mixture_has_its_own_kind(tmp_path):
    (tmp_path / "b").mkdir()
    sources = [
        as_jsonl(tmp_path, [made.COMPLETION] * 4),
        as_jsonl(tmp_path / "b", [{"body": "Hello."}] * 4) | {"text_column": "body"},
    ]
    with open_stream(sources=sources, tokenizer="byte", add_bos=False, **ONE) as stream:
        batches = take(stream)
        ledger = stream.ledger.check()
        assert [one.record_kind for one in stream.options.sources] == ["prompt_completion", "text"]
    (batch,) = batches  # the answers are "4", the texts "Hello.", all with a space or EOS
    trained = (batch.labels != -100).sum()
    assert ledger.tokens.trained == trained == 4 * len([" ", "4", "EOS"]) + 4 * len("Hello.E")
    assert ledger.documents.emitted == 8


def test_texts_and_rendered_messages_are_mixed_only_without_bos_and_eos(tmp_path):
    (tmp_path / "b").mkdir()
    sources = [
        as_jsonl(tmp_path, [made.MESSAGES]),
        as_jsonl(tmp_path / "b", [made.TEXT]),
    ]
    given = {"sources": sources, "tokenizer": load("small-qwen3"), **ONE}
    with pytest.raises(InvalidOption, match=r"sources\[0\] is rendered by a chat template"):
        open_stream(**given)
    with open_stream(**given, add_bos=False, add_eos=False) as stream:
        take(stream)
        assert stream.ledger.check().documents.emitted == 2


@pytest.mark.slow
def test_worker_processes_encode_the_same(tmp_path):
    given = {**as_jsonl(tmp_path, [made.MESSAGES] * 80), **ONE, "max_length": 64}
    given |= {"tokenizer": load("small-qwen3")}
    with open_stream(**given) as one, open_stream(**given, num_workers=2) as other:
        assert same(take(one), take(other))
        assert one.ledger == other.ledger
