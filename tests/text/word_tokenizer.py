"""A small fast tokenizer of words, so that tests can state tokens and turns literally."""

from __future__ import annotations

from typing import Any

import tokenizers
from transformers import PreTrainedTokenizerFast

SPECIALS = ["[UNK]", "<s>", "</s>"]
WORDS = [*SPECIALS, "user", "assistant", "system", "tool", *"abcdefghijklmnopqrstuvwxyz", "None"]
CHAT = (
    "{% for m in messages %}{{ m.role }} {{ m.content }} </s> {% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


def word_backend() -> tokenizers.Tokenizer:
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    model = tokenizers.models.WordLevel(vocabulary, unk_token=SPECIALS[0])
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(SPECIALS)
    return made


def word_tokenizer(
    template: str | None = CHAT,
    backend: tokenizers.Tokenizer | None = None,
    kind: type[PreTrainedTokenizerFast] = PreTrainedTokenizerFast,
    **options: Any,
) -> PreTrainedTokenizerFast:
    names = dict(zip(("unk_token", "bos_token", "eos_token"), SPECIALS, strict=True))
    given = {**names, "pad_token": SPECIALS[2], **options}
    made = kind(tokenizer_object=backend or word_backend(), **given)
    made.chat_template = template
    return made


def words_of(ids: list[int]) -> str:
    """The words of the ids, without -100."""
    return " ".join(WORDS[token] for token in ids if token >= 0)
