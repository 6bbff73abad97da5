"""The tools of a conversation reach the chat template, or an error says that they cannot."""

from __future__ import annotations

import copy
import json

import pyarrow as pa
import pytest
from datasets import Dataset
from tests.tokenizer_files import load, parameters

import quire
from quire.errors import InvalidDocument, InvalidOption


def function(name: str, **properties: str) -> dict[str, object]:
    schema = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": schema}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ADD, SINE = function("add", a="number", b="number"), function("sine", x="number")
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
TALK = [
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "4"},
    {"role": "assistant", "content": "Four."},
]
DEAF = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def deaf():
    """A tokenizer whose template does not support tools."""
    tokenizer = copy.copy(load("small-qwen3"))
    tokenizer.chat_template = DEAF
    return tokenizer


def pack(records, tokenizer=None, **options):
    options = {"messages_column": "messages", "max_length": 1024, **options}
    return quire.pack_dataset(records, tokenizer or load("small-qwen3"), **options)


def texts(packed) -> list[str]:
    rows = packed.to_list() if isinstance(packed, Dataset) else packed.to_pylist()
    return [load("small-qwen3").decode(row["input_ids"]) for row in rows]


def expected(tools) -> str:
    return load("small-qwen3").apply_chat_template(TALK, tools=tools, tokenize=False)


@pytest.mark.parametrize("name", parameters("qwen3"))
def test_tools_are_rendered_by_the_template_and_not_trained(name):
    tokenizer = load(name)
    (row,) = pack([{"messages": TALK, "tools": [ADD]}], tokenizer).to_pylist()
    rendered = tokenizer.apply_chat_template(TALK, tools=[ADD], tokenize=False)
    assert tokenizer.decode(row["input_ids"]) == rendered
    assert '"name": "add", "parameters"' in rendered
    assert tokenizer.decode([label for label in row["labels"] if label != -100]) == (
        '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 2}}\n</tool_call><|im_end|>'
        "<think>\n\n</think>\n\nFour.<|im_end|>"
    )


def test_all_of_a_conversation_with_tools_is_trained_on_request():
    (row,) = pack([{"messages": TALK, "tools": [ADD]}], assistant_only=False).to_pylist()
    assert row["labels"] == row["input_ids"]
    assert load("small-qwen3").decode(row["input_ids"]) == expected([ADD])


def test_a_template_that_marks_its_turns_gets_the_tools_too():
    tokenizer = deaf()
    tokenizer.chat_template = "{{ tools | tojson if tools }}" + DEAF.replace(
        "{{ m.content }}<|im_end|>", "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    )
    (text,) = texts(pack([{"messages": TALK, "tools": [ADD]}], tokenizer))
    assert text.startswith(json.dumps([ADD]))


def test_the_template_that_a_tokenizer_has_for_tools_is_used():
    tokenizer = deaf()
    tokenizer.chat_template = {
        "default": DEAF,
        "tool_use": "{{ tools | tojson }}" + DEAF.replace(
            "{{ m.content }}<|im_end|>", "{% generation %}{{ m.content }}{% endgeneration %}"
        ),
    }  # fmt: skip
    (row,) = pack([{"messages": TALK[:1], "tools": [ADD]}], tokenizer).to_pylist()
    assert tokenizer.decode([label for label in row["labels"] if label != -100]) == "2 + 2?"
    talk = [TALK[0], TALK[3]]
    (row,) = pack([{"messages": talk, "tools": None}], tokenizer).to_pylist()
    assert tokenizer.decode([label for label in row["labels"] if label != -100]) == (
        "Four.<|im_end|>"
    )


@pytest.mark.parametrize("tools", [json.dumps([ADD]), (ADD,)])
def test_tools_may_be_json_or_any_sequence(tools):
    assert texts(pack([{"messages": TALK, "tools": tools}])) == [expected([ADD])]


@pytest.mark.parametrize("none", [None, [], "", "null", "[]"])
def test_a_conversation_without_tools_is_rendered_without_them(none):
    records = [{"messages": TALK, "tools": none}, {"messages": TALK}]
    assert texts(pack(records, max_documents_per_row=1)) == [expected(None)] * 2
    assert len(pack([{"messages": TALK, "tools": none}], deaf())) == 1


def test_each_conversation_has_its_own_tools_even_after_arrow():
    """Arrow gives all structs the same keys: the parameters of one tool would appear in all."""
    records = [{"messages": TALK, "tools": [tool]} for tool in (ADD, SINE)]
    options = {"max_documents_per_row": 1, "shuffle": False}
    wanted = [expected([ADD]), expected([SINE])]
    for form in (records, Dataset.from_list(records), pa.Table.from_pylist(records)):
        assert texts(pack(form, **options)) == wanted


def test_another_column_may_hold_the_tools():
    records = [{"messages": TALK, "tools": [SINE], "functions": [ADD]}]
    assert texts(pack(records, tools_column="functions")) == [expected([ADD])]
    with pytest.raises(InvalidOption, match="unknown column 'function'; did you mean 'functions'"):
        pack(records, tools_column="function")


def test_tools_that_the_template_does_not_render_are_an_error_unless_left_out_explicitly():
    records = [{"messages": TALK, "tools": [ADD]}]
    with pytest.raises(InvalidDocument, match=r"record 0 has tools, which.*tools_column=None"):
        pack(records, deaf())
    assert pack(records, deaf(), tools_column=None).equals(pack([{"messages": TALK}], deaf()))
    assert texts(pack(records, tools_column=None)) == [expected(None)]


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ("{", "has tools that are not JSON"),
        ('"add"', "has str where a list of tools is needed"),
        (ADD, "has dict where a list of tools is needed"),
        (7, "has int where a list of tools is needed"),
        (["add"], "is rejected by the chat template: Tools should"),
    ],
)
def test_invalid_tools_are_a_bad_record(tools, problem):
    with pytest.raises(InvalidDocument, match=f"record 1 {problem}"):
        pack([{"messages": TALK}, {"messages": TALK, "tools": tools}])


def test_tools_column_names_a_column_and_needs_messages():
    with pytest.raises(InvalidOption, match=r"tools_column is \[.* but must be a string"):
        pack([{"messages": TALK}], tools_column=[ADD])
    with pytest.raises(InvalidOption, match="tools_column='functions' is only for conversations"):
        quire.pack_dataset([{"text": "a"}], "byte", max_length=8, tools_column="functions")
