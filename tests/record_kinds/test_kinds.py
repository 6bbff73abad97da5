"""Records as people have them are recognized, and trained on their answers."""

from __future__ import annotations

import json
import logging
from itertools import pairwise

import pyarrow as pa
import pytest
from datasets import Dataset

import quire
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.record_kinds import example_of, kinds_of
from tests.record_kinds import records as made
from tests.tokenizer_files import load

THOUGHTS = "<think>\n\n</think>\n\n"


def trained(rows, tokenizer) -> list[str]:
    """What is trained of each document, in order."""
    texts = []
    for row in getattr(rows, "data", rows).to_pylist():
        edges = [*row["document_starts"], len(row["input_ids"])]
        for start, stop in pairwise(edges):
            labels = [label for label in row["labels"][start:stop] if label != -100]
            texts.append(tokenizer.decode(labels).replace(THOUGHTS, ""))
    return texts


@pytest.mark.parametrize(("kind", "record"), [(k, r) for k, rs in made.KINDS.items() for r in rs])
def test_a_record_is_recognized_also_by_the_columns_of_a_table(kind, record):
    assert kinds_of(record) == [kind]
    assert kinds_of(example_of(pa.Table.from_pylist([record]).schema)) == [kind]


@pytest.mark.parametrize(("record", "answers"), made.TRAINED)
@pytest.mark.parametrize("form", [list, pa.Table.from_pylist, Dataset.from_list])
def test_the_answers_are_trained_and_the_questions_are_not(record, answers, form):
    qwen3 = load("small-qwen3")
    rows = quire.pack_dataset(form([record]), qwen3, max_length=128)
    assert trained(rows, qwen3) == answers


def test_without_a_chat_template_an_instruction_has_the_layout_of_alpaca():
    (row,) = quire.pack_dataset([made.INSTRUCTION], "byte", max_length=400).to_pylist()
    decode = quire.text.as_tokenizer("byte").decode
    assert decode(row["input_ids"]) == (
        "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nAdd.\n\n### Input:\n2 2\n\n### Response:\n4"
    )
    assert row["labels"][-2:] == row["input_ids"][-2:] == [ord("4") + 3, 2]
    assert set(row["labels"][:-2]) == {-100}


def test_with_a_chat_template_instruction_and_input_are_the_users_turn():
    qwen3 = load("small-qwen3")
    (row,) = quire.pack_dataset([made.INSTRUCTION], qwen3, max_length=128).to_pylist()
    asked = [{"role": "user", "content": "Add.\n\n2 2"}, {"role": "assistant", "content": "4"}]
    assert qwen3.decode(row["input_ids"]) == qwen3.apply_chat_template(asked, tokenize=False)


def test_both_answers_of_a_preference_share_a_row_in_order():
    """By their numbers, 2n and 2n + 1; a pair that no row holds is dropped as a whole."""
    long = {"prompt": "Hi?", "chosen": "x" * 60, "rejected": "y"}
    records = [made.PAIR, long, *[made.IMPLICIT_PAIR] * 3]
    rows, ledger = quire.pack_dataset(
        records, "byte", max_length=48, keep_sources=True, return_ledger=True
    )
    ids = [row["document_ids"] for row in rows.to_pylist()]
    assert sorted(number for row in ids for number in row) == [0, 1, 4, 5, 6, 7, 8, 9]
    for row in ids:
        assert row[1::2] == [number + 1 for number in row[::2]]
    assert ledger.documents.dropped == {"group_too_long": 2}


def test_a_function_call_of_sharegpt_is_a_tool_call():
    call = {"name": "add", "arguments": {"a": 2}}
    turns = [
        {"from": "human", "value": "2 + 2?"},
        {"from": "function_call", "value": json.dumps(call)},
        {"from": "observation", "value": "4"},
        {"from": "gpt", "value": "Four."},
    ]
    qwen3 = load("small-qwen3")
    rows = quire.pack_dataset([{"conversations": turns}], qwen3, max_length=256)
    (said,) = trained(rows, qwen3)
    assert said == (
        '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>Four.<|im_end|>'
    )


def test_content_may_be_a_list_of_texts_and_nothing_else():
    qwen3 = load("small-qwen3")
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo."}]
    talk = [made.HI, {"role": "assistant", "content": parts}]
    rows = quire.pack_dataset([{"messages": talk}], qwen3, max_length=128)
    assert trained(rows, qwen3) == ["Hello.<|im_end|>"]
    seen = [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, made.HELLO]
    with pytest.raises(InvalidDocument, match="record 0 has a part of type image_url in message 0"):
        quire.pack_dataset([{"messages": seen}], qwen3, max_length=128)


def test_reasoning_is_trained_with_the_answer():
    qwen3 = load("small-qwen3")
    thoughtful = {**made.HELLO, "reasoning_content": "A greeting."}
    rows = quire.pack_dataset([{"messages": [made.HI, thoughtful]}], qwen3, max_length=128)
    assert trained(rows, qwen3) == ["<think>\nA greeting.\n</think>\n\nHello.<|im_end|>"]


def test_what_was_recognized_is_said_in_one_line(caplog):
    with caplog.at_level(logging.INFO, "quire"):
        quire.pack_dataset([made.COMPLETION], "byte", max_length=64)
        quire.pack_dataset([{**made.INSTRUCTION, "text": "x"}], "byte", max_length=64)
        quire.pack_dataset([made.TEXT], "byte", max_length=64)
    assert caplog.messages == [
        "recognized from the first records: prompts and completions "
        "(record_kind='prompt_completion')",
        "recognized from the first records: text (record_kind='text'); they also fit "
        "instructions and outputs (record_kind='instruction')",
    ]


def test_the_kind_can_be_given_instead():
    record = {**made.INSTRUCTION, "text": "Hello."}
    (row,) = quire.pack_dataset([record], "byte", max_length=400).to_pylist()
    assert "labels" not in row and len(row["input_ids"]) == 8
    options = {"record_kind": "instruction", "max_length": 400}
    (row,) = quire.pack_dataset([record], "byte", **options).to_pylist()
    assert len(row["input_ids"]) > 100 and "labels" in row


@pytest.mark.parametrize(
    ("kind", "record", "problem"),
    [
        ("text", made.SHAREGPT, "holds ShareGPT conversations: use record_kind='sharegpt'"),
        ("text", made.MESSAGES, "holds messages with role and content: use record_kind='messages'"),
        ("instruction", made.COMPLETION, "use record_kind='prompt_completion'"),
        ("messages", made.PAIR, "holds preference pairs: use record_kind='preference'"),
        ("sharegpt", made.TEXT, "holds text: use record_kind='text'"),
    ],
)
@pytest.mark.parametrize("form", [list, pa.Table.from_pylist])
def test_a_record_of_another_kind_names_the_option_to_use(kind, record, problem, form):
    with pytest.raises((InvalidDocument, InvalidOption), match=problem):
        quire.pack_dataset(form([record]), load("small-qwen3"), max_length=64, record_kind=kind)


def test_one_record_of_another_kind_is_an_error_or_a_counted_drop():
    records = [made.COMPLETION, made.MESSAGES]
    with pytest.raises(InvalidDocument, match=r"record 1 .*: use record_kind='messages'"):
        quire.pack_dataset(records, "byte", max_length=64)
    with pytest.warns(UserWarning, match="bad_record: 1 document"):
        rows = quire.pack_dataset(records, "byte", max_length=64, max_bad_records=1)
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"record_kind": "shargpt"}, "did you mean sharegpt"),
        ({"record_kind": "text", "messages_column": "m"}, "has no messages_column"),
        ({"record_kind": "text", "pretokenized": True}, "is not tokens"),
        ({"record_kind": "preference", "group_column": "id"}, "leave group_column out"),
        ({"record_kind": "instruction", "truncate_to": 5}, "truncate_to=5 is only for text"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, problem):
    with pytest.raises(InvalidOption, match=problem):
        quire.pack_dataset([made.INSTRUCTION], "byte", max_length=64, **options)
