"""Templates of the shapes that models come with: each turn of the assistant, with its own end."""

from __future__ import annotations

import copy
from functools import cache

import pytest
from tests.tokenizer_files import load, parameters

import quire

TALK = [
    {"role": "user", "content": "Hi?"},
    {"role": "assistant", "content": "Hello there."},
    {"role": "user", "content": "More!"},
    {"role": "assistant", "content": "No.\n\nBye"},
]
PROMPT = "{% if add_generation_prompt %}"
EACH = "{% for m in messages %}"

CHATML = (
    EACH + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{{ '\n' }}{% endfor %}"
    + PROMPT + "<|im_start|>assistant\n{% endif %}"
)  # fmt: skip
LLAMA_2 = (
    EACH + "{% if m.role == 'user' %}<s>[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }} </s>{% endif %}{% endfor %}"
)
LLAMA_3 = (
    EACH + "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}" + PROMPT + "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "<s>" + EACH + "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
)
GEMMA = (
    EACH + "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content | trim }}<end_of_turn>{{ '\n' }}{% endfor %}"
    + PROMPT + "<start_of_turn>model\n{% endif %}"
)  # fmt: skip
PHI_3 = (
    EACH + "<|{{ m.role }}|>\n{{ m.content }}<|end|>{{ '\n' }}{% endfor %}"
    + PROMPT + "<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)  # fmt: skip
ZEPHYR = (
    EACH + "<|{{ m.role }}|>\n{{ m.content + eos_token }}{{ '\n' }}{% endfor %}"
    + PROMPT + "<|assistant|>\n{% endif %}"
)  # fmt: skip
DEEPSEEK = (
    EACH + "{% if m.role == 'user' %}<|User|>{{ m.content }}"
    "{% else %}<|Assistant|>{{ m.content }}<|end_of_sentence|>{% endif %}{% endfor %}"
    + PROMPT + "<|Assistant|>{% endif %}"
)  # fmt: skip
GPT_OSS = (
    EACH + "<|start|>{{ m.role }}<|message|>{{ m.content }}{% if loop.last and m.role == "
    "'assistant' and not add_generation_prompt %}<|return|>{% else %}<|end|>{% endif %}"
    "{% endfor %}" + PROMPT + "<|start|>assistant{% endif %}"
)
GLM_4 = (
    EACH + "<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    + PROMPT + "<|assistant|>\n{% endif %}"
)  # fmt: skip
ALPACA = (
    EACH + "### {{ 'Response' if m.role == 'assistant' else 'Instruction' }}:\n{{ m.content }}"
    "{{ '\n\n' }}{% endfor %}" + PROMPT + "### Response:\n{% endif %}"
)
ONE_EOS = PROMPT + "{% else %}{{ eos_token }}{% endif %}"


@cache
def taught(name: str, *marks: str):
    """Qwen3's tokenizer with the marks of other models added."""
    tokenizer = copy.deepcopy(load(name))
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks]})
    return tokenizer


def tokenizer_of(shape: str, name: str):
    (template, eos, *marks), _ = SHAPES[shape]
    every = {mark for (_, *known), _ in SHAPES.values() for mark in known}
    tokenizer = taught(name, *sorted(every)) if marks else taught(name, eos)
    tokenizer.chat_template, tokenizer.eos_token = template, eos
    return tokenizer


def trained(messages, tokenizer) -> list[str]:
    """What is trained, turn by turn."""
    rows = quire.pack_dataset(
        [{"messages": messages}], tokenizer, messages_column="messages", max_length=256
    )
    (row,) = rows.to_pylist()
    assert tokenizer.decode(row["input_ids"]) == tokenizer.apply_chat_template(
        messages, tokenize=False
    )
    turns, before = [], -100
    for token, label in zip(row["input_ids"], row["labels"], strict=True):
        assert label in (token, -100)
        if label != -100:
            turns = [*turns, []] if before == -100 else turns
            turns[-1].append(label)
        before = label
    return [tokenizer.decode(turn) for turn in turns]


SHAPES = {
    "ChatML": (
        (CHATML, "<|im_end|>"),
        ["Hello there.<|im_end|>", "No.\n\nBye<|im_end|>"],
    ),
    "ChatML, with another EOS": (
        (CHATML, "<|endoftext|>"),
        ["Hello there.<|im_end|>", "No.\n\nBye<|im_end|>"],
    ),
    "ChatML, with EOS at the end": (
        (CHATML + ONE_EOS, "<|endoftext|>"),
        ["Hello there.<|im_end|>", "No.\n\nBye<|im_end|>\n<|endoftext|>"],
    ),
    "Llama 2": (
        (LLAMA_2, "</s>", "<s>", "[INST]", "[/INST]"),
        [" Hello there. </s>", " No.\n\nBye </s>"],
    ),
    "Llama 3": (
        (LLAMA_3, "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
        ["Hello there.<|eot_id|>", "No.\n\nBye<|eot_id|>"],
    ),
    "Llama 3, with another EOS": (
        (LLAMA_3, "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"),
        ["Hello there.<|eot_id|>", "No.\n\nBye<|eot_id|>"],
    ),
    "Mistral": (
        (MISTRAL, "</s>", "<s>", "[INST]", "[/INST]"),
        ["Hello there.</s>", "No.\n\nBye</s>"],
    ),
    "Gemma": (
        (GEMMA, "<eos>", "<start_of_turn>", "<end_of_turn>"),
        ["Hello there.<end_of_turn>", "No.\n\nBye<end_of_turn>"],
    ),
    "Phi-3": (
        (PHI_3, "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"),
        ["Hello there.<|end|>", "No.\n\nBye<|end|>\n<|endoftext|>"],
    ),
    "Phi-3, of which no mark is a token": (
        (PHI_3.replace("<|end|>", "<|end|>:"), "<|endoftext|>"),
        ["Hello there.<|end|>:\n", "No.\n\nBye<|end|>:\n<|endoftext|>"],  # ":\n" is one token
    ),
    "Phi-3, without lines between turns": (
        (PHI_3.replace("{{ '\n' }}", ""), "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"),
        ["Hello there.<|end|>", "No.\n\nBye<|end|><|endoftext|>"],
    ),
    "Zephyr": (
        (ZEPHYR, "</s>"),
        ["Hello there.</s>", "No.\n\nBye</s>"],
    ),
    "DeepSeek": (
        (DEEPSEEK, "<|end_of_sentence|>", "<|User|>", "<|Assistant|>"),
        ["Hello there.<|end_of_sentence|>", "No.\n\nBye<|end_of_sentence|>"],
    ),
    "gpt-oss": (
        (GPT_OSS, "<|return|>", "<|start|>", "<|message|>", "<|end|>"),
        ["<|message|>Hello there.<|end|>", "<|message|>No.\n\nBye<|return|>"],
    ),
    "GLM-4, whose turns have no end": (
        (GLM_4, "<|endoftext|>", "<|user|>", "<|assistant|>"),
        ["Hello there.", "No.\n\nBye"],
    ),
    "GLM-4, with EOS at the end": (
        (GLM_4 + ONE_EOS, "<|endoftext|>", "<|user|>", "<|assistant|>"),
        ["Hello there.", "No.\n\nBye<|endoftext|>"],
    ),
    "ChatML without an end, with EOS at the end": (
        (CHATML.replace("<|im_end|>", "") + ONE_EOS, "<|endoftext|>"),
        ["Hello there.\n", "No.\n\nBye\n<|endoftext|>"],  # ".\n" is one token
    ),
    "Alpaca": (
        (ALPACA, "<|endoftext|>"),
        ["Hello there.\n\n", "No.\n\nBye"],  # ".\n\n" is one token
    ),
    "Alpaca, with EOS after each answer": (
        (ALPACA.replace("{{ '\n\n' }}", "{{ eos_token if m.role == 'assistant' }}{{ '\n\n' }}"),
         "<|endoftext|>"),
        ["Hello there.<|endoftext|>", "No.\n\nBye<|endoftext|>"],
    ),
    "EOS far after each answer": (
        (EACH + "{{ m.role }}:\n{{ m.content }}{{ '\n' * 9 }}{{ eos_token }}{% endfor %}"
         + PROMPT + "assistant:\n{% endif %}", "</s>"),
        ["Hello there." + "\n" * 9 + "</s>", "No.\n\nBye" + "\n" * 9 + "</s>"],
    ),
    "Alpaca, with EOS at the end": (
        (ALPACA + ONE_EOS, "<|endoftext|>"),
        ["Hello there.\n\n", "No.\n\nBye\n\n<|endoftext|>"],
    ),
    "EOS only between turns": (
        (EACH + "{{ m.role }}:\n{{ m.content }}{{ eos_token if not loop.last }}{% endfor %}"
         + PROMPT + "{{ eos_token }}assistant:\n{% endif %}", "</s>"),
        ["Hello there.</s>", "No.\n\nBye"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", parameters("qwen3"))
@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_is_trained_with_the_end_of_its_turn_and_nothing_else(shape, name):
    assert trained(TALK, tokenizer_of(shape, name)) == SHAPES[shape][1]


@pytest.mark.parametrize("name", parameters("qwen3"))
@pytest.mark.parametrize("shape", SHAPES)
def test_every_turn_before_another_message_ends_in_the_same_way(shape, name):
    talk = [*TALK, {"role": "user", "content": "Wait."}]
    first, second = trained(talk, tokenizer_of(shape, name))
    assert first == SHAPES[shape][1][0]
    assert second.rstrip() == first.rstrip().replace("Hello there.", "No.\n\nBye")
