"""The small tokenizers have the properties of the real ones that they stand for."""

from __future__ import annotations

import json

import pytest

from tests.tokenizer_files import SMALL, folder_of, load, parameters

QWEN3, GPT2 = parameters("qwen3"), parameters("gpt2")
ADD = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
OTHER = {"name": "sine", "arguments": '{"x": 0.5}'}


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str, **more) -> dict[str, object]:
    return {"role": "assistant", "content": content, **more}


def tool(content: str) -> dict[str, str]:
    return {"role": "tool", "content": content}


SYSTEM = {"role": "system", "content": "You bind books."}
THOUGHT = "<think>\nWell.\n</think>\n\nHello."
TALKS = [
    [user("Hi")],
    [SYSTEM, user("Hi"), assistant("Hello.")],
    [user("Hi"), assistant(THOUGHT), user("So?"), assistant(THOUGHT)],
    [user("Hi"), assistant("\nHello.", reasoning_content="\nWell.\n"), assistant("Yes.")],
    [user("Hi"), assistant("Hello.", reasoning_content=None, tool_calls=None)],
    [user("2 + 2?"), assistant("", tool_calls=[ADD, OTHER]), tool("4"), tool("0"), assistant("4")],
    [user("2 + 2?"), assistant("Wait.", tool_calls=[ADD]), tool("4"), user("So?")],
    [user("Hi"), assistant("A"), SYSTEM, user("<tool_response>4</tool_response>"), assistant("B")],
    [assistant("\n\nWelcome."), user("Hi")],
]


@pytest.mark.parametrize("name", QWEN3)
def test_qwen3_has_no_bos_and_its_eos_ends_a_turn(name):
    shipped, base = load(name), load(f"{name}-base")
    assert shipped.bos_token is None
    assert (shipped.eos_token, shipped.pad_token) == ("<|im_end|>", "<|endoftext|>")
    assert shipped("Hi")["input_ids"] == shipped("Hi", add_special_tokens=False)["input_ids"]
    assert base.eos_token == base.pad_token == "<|endoftext|>"  # noqa: S105


@pytest.mark.parametrize("name", GPT2)
def test_gpt2_has_one_token_for_bos_and_eos_and_no_pad(name):
    tokenizer = load(name)
    assert tokenizer.bos_token == tokenizer.eos_token == "<|endoftext|>"  # noqa: S105
    assert tokenizer.pad_token is None
    assert tokenizer.eos_token_id == len(tokenizer) - 1


@pytest.mark.parametrize("name", [*QWEN3, *GPT2])
def test_any_text_is_decoded_unchanged(name):
    text = "Ünïcode 書 🎉\n\n\ttabs  <|endoftext|> it's 1234."
    tokenizer = load(name)
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("name", QWEN3)
def test_qwen3_composes_characters_and_splits_digits(name):
    tokenizer = load(name)
    assert tokenizer("u\u0308")["input_ids"] == tokenizer("ü")["input_ids"]
    assert len(tokenizer("1234")["input_ids"]) == 4
    assert tokenizer.convert_ids_to_tokens(tokenizer("there.\n\n")["input_ids"])[-1] == ".ĊĊ"


@pytest.mark.parametrize("name", QWEN3)
def test_markup_of_tools_and_thoughts_is_one_token_each_and_not_special(name):
    tokenizer = load(name)
    markup = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>"]
    ids = tokenizer("".join(markup))["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == markup
    assert tokenizer.decode(ids, skip_special_tokens=True) == "".join(markup)
    assert tokenizer.decode(tokenizer("<|im_start|>")["input_ids"], skip_special_tokens=True) == ""


def test_a_conversation_with_tools_as_literal_text():
    rendered = load("small-qwen3").apply_chat_template(TALKS[5], tokenize=False)
    assert rendered == (
        "<|im_start|>user\n2 + 2?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>\n'
        '<tool_call>\n{"name": "sine", "arguments": {"x": 0.5}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n4\n</tool_response>\n"
        "<tool_response>\n0\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n4<|im_end|>\n"
    )


def test_thoughts_are_dropped_from_earlier_turns():
    rendered = load("small-qwen3").apply_chat_template(
        TALKS[2], tokenize=False, add_generation_prompt=True
    )
    assert rendered == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n"
        "<|im_start|>user\nSo?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nWell.\n</think>\n\nHello.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("name", QWEN3)
@pytest.mark.parametrize("talk", TALKS)
def test_the_small_template_renders_what_the_real_one_renders(name, talk):
    asked = {"tokenize": False, "add_generation_prompt": True}
    for how in ({"tokenize": False}, asked, {**asked, "enable_thinking": False}):
        small = load("small-qwen3").apply_chat_template(talk, **how)
        assert small == load(name).apply_chat_template(talk, **how)


def test_the_template_in_the_configuration_equals_the_readable_one():
    config = json.loads((folder_of("small-qwen3") / "tokenizer_config.json").read_text("utf-8"))
    assert config["chat_template"] == (SMALL / "chatml.jinja").read_text(encoding="utf-8")
