"""Conversations to documents, with labels on what the assistant says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument, InvalidOption

IGNORE = -100
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")

Messages: TypeAlias = Sequence[dict[str, Any]]


class ChatTokenizer(Protocol):
    """What is needed of a transformers tokenizer."""

    eos_token: str | None
    get_chat_template: Callable[..., str]
    apply_chat_template: Callable[..., Any]
    __call__: Callable[..., Any]


def encode_conversations(
    conversations: Iterable[Messages], tokenizer: ChatTokenizer, *, assistant_only: bool = True
) -> Iterable[tuple[list[int], list[int]]]:
    """(input_ids, labels) of each conversation, as the chat template renders it.

    With ``assistant_only``, labels are -100 on everything that the assistant does not say. Where
    the template marks that itself (a generation block), its mask is used; otherwise the turns are
    found in the rendered text.
    """
    if not hasattr(tokenizer, "apply_chat_template"):
        raise InvalidOption(
            f"{type(tokenizer).__name__} has no chat template; pass a transformers tokenizer to "
            "pack messages"
        )
    template = tokenizer.get_chat_template()
    encode = _encode_marked if _GENERATION.search(template) else _encode_found
    for number, messages in enumerate(conversations):
        _require_messages(number, messages)
        ids, spoken = (
            encode(number, messages, tokenizer)
            if assistant_only
            else (
                _plain(messages, tokenizer),
                None,
            )
        )
        yield ids, list(ids) if spoken is None else np.where(spoken, ids, IGNORE).tolist()


def _plain(messages: Messages, tokenizer: ChatTokenizer) -> list[int]:
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def _encode_marked(
    number: int, messages: Messages, tokenizer: ChatTokenizer
) -> tuple[list[int], npt.NDArray[np.bool]]:
    rendered = tokenizer.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return rendered["input_ids"], np.array(rendered["assistant_masks"], dtype=bool)


def _encode_found(
    number: int, messages: Messages, tokenizer: ChatTokenizer
) -> tuple[list[int], npt.NDArray[np.bool]]:
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    begins, ends = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2).T
    spoken = np.zeros(len(begins), dtype=bool)
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            start, stop = _turn(number, turn, messages, text, tokenizer)
            spoken |= (begins >= start) & (ends <= stop) & (ends > begins)
    return encoded["input_ids"], spoken


def _turn(
    number: int, turn: int, messages: Messages, text: str, tokenizer: ChatTokenizer
) -> tuple[int, int]:
    """From behind the generation prompt to behind the end-of-turn token."""
    before = tokenizer.apply_chat_template(
        messages[:turn], tokenize=False, add_generation_prompt=True
    )
    content = str(messages[turn].get("content") or "").strip()
    said = text.find(content, len(before)) if text.startswith(before) else -1
    if said < 0:
        raise InvalidDocument(
            f"conversation {number}: turn {turn} of the assistant cannot be found in what the chat "
            "template renders; give the tokenizer a template with {% generation %} blocks, or use "
            "assistant_only=False"
        )
    stop = said + len(content)
    end_of_turn = tokenizer.eos_token or ""
    closing = text.find(end_of_turn, stop)
    return len(before), closing + len(end_of_turn) if closing >= 0 else stop


def _require_messages(number: int, messages: object) -> None:
    fine = isinstance(messages, Sequence) and not isinstance(messages, str) and len(messages)
    if not fine or not all(isinstance(m, dict) and "role" in m for m in messages):  # type: ignore[attr-defined]
        raise InvalidDocument(
            f"conversation {number} is {type(messages).__name__} but must be a non-empty list of "
            "messages, each with a role and a content"
        )
