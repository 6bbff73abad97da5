"""Recognized turns equal those found by rendering each one separately."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.dataset.test_chat_templates import SHAPES, tokenizer_of
from tests.text import turn_oracle
from tests.text.word_tokenizer import word_tokenizer
from tests.tokenizer_files import load

from quire.errors import InvalidDocument
from quire.text.chat.template import ChatTemplate
from quire.text.chat.turns import TurnForm, find_turns

CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
DATE = datetime.date(2026, 11, 18)
PIECES = [
    *("a", "b c", " ", "\n", "\n\n", "", "ä", "###", "Response", ":"),
    *("<think>", "</think>", "<|im_end|>", "<|im_start|>assistant\n", "</s>", "[/INST]"),
    *("<|end|>", "<|endoftext|>", "<|assistant|>", "<|eot_id|>", "assistant", "user"),
]
contents = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=4).map("".join),
    st.text("ab \n", max_size=4),
)
asked = st.builds(lambda content: {"role": "user", "content": content}, contents)
answered = st.builds(lambda content: {"role": "assistant", "content": content}, contents)
plain_talks = st.lists(st.tuples(asked, answered), min_size=1, max_size=4).map(
    lambda pairs: [message for pair in pairs for message in pair]
)


def calling(content: str, reasoning: str | None, call: bool) -> dict:
    extra = {} if reasoning is None else {"reasoning_content": reasoning}
    return {
        "role": "assistant",
        "content": content,
        **extra,
        **({"tool_calls": [CALL]} if call else {}),
    }


thinking = st.builds(calling, contents, st.none() | contents, st.booleans())
results = st.builds(lambda content: {"role": "tool", "content": content}, contents)
tool_talks = st.builds(
    lambda first, rest: [first, *rest],
    asked,
    st.lists(st.one_of(asked, answered, thinking, results), max_size=7),
)


def template_of(shape: str) -> ChatTemplate:
    return ChatTemplate(tokenizer_of(shape, "small-qwen3"), DATE)


def require_same_turns(talk, template: ChatTemplate, form: TurnForm | None) -> None:
    text = template.render(talk)
    try:
        expected = list(turn_oracle.find_turns(talk, text, template))
    except InvalidDocument:
        return  # recognizing may find turns that rendering anew cannot
    assert list(find_turns(talk, text, template, form)) == expected


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=25, deadline=None)
@given(talk=plain_talks, open_end=st.booleans())
def test_the_turns_of_every_shape_equal_those_found_by_rendering_each_one(shape, talk, open_end):
    template = template_of(shape)
    form = TurnForm.learned(template)
    require_same_turns(talk[:-1] if open_end and len(talk) > 2 else talk, template, form)


@pytest.mark.parametrize("name", ["small-qwen3", "small-qwen3-base"])
@settings(max_examples=60, deadline=None)
@given(talk=st.one_of(plain_talks, tool_talks))
def test_turns_with_thoughts_and_tool_calls_equal_those_found_by_rendering_each_one(name, talk):
    template = ChatTemplate(load(name), DATE)
    require_same_turns(talk, template, TurnForm.learned(template))


def test_the_form_of_a_template_is_learned_once():
    form = TurnForm.learned(ChatTemplate(load("small-qwen3"), DATE))
    assert form is not None
    assert form.opener == "<|im_start|>assistant\n"
    assert form.leads == ("", "<think>\n\n</think>\n\n")
    assert (form.closing, form.last_closing) == ("<|im_end|>", "<|im_end|>")
    assert TurnForm.learned(ChatTemplate(word_tokenizer("nothing"), DATE)) is None


@pytest.mark.parametrize("shape", SHAPES)
def test_plain_turns_are_recognized_without_rendering_again(shape, monkeypatch):
    template = template_of(shape)
    form = TurnForm.learned(template)
    talk = [
        {"role": role, "content": f"{role} {number}"}
        for number in range(50)
        for role in ("user", "assistant")
    ]
    text = template.render(talk)
    expected = list(turn_oracle.find_turns(talk, text, template))
    monkeypatch.setattr(ChatTemplate, "render", None)
    assert list(find_turns(talk, text, template, form)) == expected


def test_turns_with_thoughts_and_tool_calls_are_recognized_too(monkeypatch):
    talk = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nb\n</think>\n\nc"},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": "", "reasoning_content": "e", "tool_calls": [CALL]},
        {"role": "tool", "content": "f"},
        {"role": "assistant", "content": "g", "reasoning_content": "h"},
    ]
    for name in ("small-qwen3", "small-qwen3-base"):
        template = ChatTemplate(load(name), DATE)
        form, text = TurnForm.learned(template), template.render(talk)
        expected = list(turn_oracle.find_turns(talk, text, template))
        with monkeypatch.context() as patch:
            patch.setattr(ChatTemplate, "render", None)
            assert list(find_turns(talk, text, template, form)) == expected
