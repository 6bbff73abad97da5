"""A conversation to tokens, with labels on what the assistant says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from os.path import commonprefix
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument, InvalidOption

IGNORE = -100
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_STAND_IN = "quire-stand-in-for-what-the-assistant-says"

Messages: TypeAlias = Sequence[Mapping[str, Any]]
Encode: TypeAlias = Callable[[Messages], tuple[list[int], list[int]]]


class ChatTokenizer(Protocol):
    """What is needed of a transformers tokenizer."""

    eos_token: str | None
    is_fast: bool
    get_chat_template: Callable[..., str]
    apply_chat_template: Callable[..., Any]
    get_added_vocab: Callable[[], dict[str, int]]
    __call__: Callable[..., Any]


def conversation_encoder(tokenizer: ChatTokenizer, assistant_only: bool = True) -> Encode:
    """A function from messages to (input_ids, labels), as the chat template renders them.

    With ``assistant_only``, labels are -100 on everything that the assistant does not say. Where
    the template marks that itself (a generation block), its mask is used; otherwise the turns are
    found in the rendered text. The function raises `InvalidDocument` with a message that completes
    'record 7 ...'.
    """
    spoken = _spoken_by(tokenizer) if assistant_only else _everything

    def encode(messages: Messages) -> tuple[list[int], list[int]]:
        _require_messages(messages)
        ids, said = spoken(messages, tokenizer)
        return ids, np.where(said, ids, IGNORE).tolist()

    _template(tokenizer)
    return encode


Spoken: TypeAlias = Callable[[Messages, ChatTokenizer], tuple[list[int], npt.NDArray[np.bool]]]


def _template(tokenizer: ChatTokenizer) -> str:
    try:
        return tokenizer.get_chat_template()
    except (AttributeError, ValueError) as error:
        raise InvalidOption(
            f"{type(tokenizer).__name__} has no chat template; pass a transformers tokenizer that "
            "has one, or set its chat_template"
        ) from error


def _spoken_by(tokenizer: ChatTokenizer) -> Spoken:
    if _GENERATION.search(_template(tokenizer)):
        return _marked
    if not getattr(tokenizer, "is_fast", False):
        raise InvalidOption(
            f"{type(tokenizer).__name__} is slow, so it cannot say where its tokens stand in the "
            "text; use a fast tokenizer, a template with {% generation %} blocks, or "
            "assistant_only=False"
        )
    return _found


def _everything(
    messages: Messages, tokenizer: ChatTokenizer
) -> tuple[list[int], npt.NDArray[np.bool]]:
    text = _render(messages, tokenizer)
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids, np.ones(len(ids), dtype=bool)


def _marked(messages: Messages, tokenizer: ChatTokenizer) -> tuple[list[int], npt.NDArray[np.bool]]:
    rendered = _render(
        messages, tokenizer, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    return rendered["input_ids"], np.array(rendered["assistant_masks"], dtype=bool)


def _found(messages: Messages, tokenizer: ChatTokenizer) -> tuple[list[int], npt.NDArray[np.bool]]:
    """The turns as they stand in the text, with every token that holds a character of them.

    A token that takes a space of the prompt, or a line end of the template, is part of the answer
    all the same, as it is where transformers makes the mask: without it ' Yes' is never learnt.
    """
    text = _render(messages, tokenizer)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    begins, ends = np.array(encoded["offset_mapping"], dtype=np.int64).reshape(-1, 2).T
    said = np.zeros(len(begins), dtype=bool)
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            start, stop = _turn(turn, messages, text, tokenizer)
            said |= (begins < stop) & (ends > start) & (start < stop)
    return encoded["input_ids"], said


def _turn(turn: int, messages: Messages, text: str, tokenizer: ChatTokenizer) -> tuple[int, int]:
    """From behind the generation prompt to behind the end-of-turn token.

    The end of what is said is found from behind, by rendering a stand-in in its place: templates
    strip contents, and drop the thoughts of earlier turns.
    """
    other = {**messages[turn], "content": _STAND_IN}
    rendered = _render([*messages[:turn], other, *messages[turn + 1 :]], tokenizer)
    before, found, behind = rendered.rpartition(_STAND_IN)
    if turn:  # most templates refuse an empty conversation
        before = _render(messages[:turn], tokenizer, add_generation_prompt=True)
    if not (found and text.startswith(before) and text.endswith(behind)):
        raise InvalidDocument(
            f"has a turn of the assistant, its message {turn}, that cannot be found in what the "
            "chat template renders; give the tokenizer a template with {% generation %} blocks, "
            "or use assistant_only=False"
        )
    stop = len(text) - len(behind)
    return len(before), stop + _closing([*messages[:turn], other], behind, tokenizer)


def _closing(until: Messages, behind: str, tokenizer: ChatTokenizer) -> int:
    """Characters from the end of the content to the end of the turn, its closing token included."""
    eos = tokenizer.eos_token
    blank = len(behind) - len(behind.lstrip())
    if eos and behind.startswith(eos, blank):
        return blank + len(eos)
    rest = _render(until, tokenizer).rpartition(_STAND_IN)[2]
    if not behind.startswith(rest):  # the template closes its last turn in a way of its own
        rest = _end_of_any(until, rest, behind, tokenizer)
    at_eos = rest.find(eos) if eos else -1
    return len(rest.rstrip()) if at_eos < 0 else at_eos + len(eos or "")


def _end_of_any(until: Messages, last: str, behind: str, tokenizer: ChatTokenizer) -> str:
    """What closes a turn that is not the last one, which closes with ``last``.

    It is what the two share (Phi-3: '<|end|>', where EOS follows the last one), as far as the last
    blank or whole token, since '<|' of the next message may be shared too. Where they share
    nothing, it is the first of two tokens that stand before whoever speaks next (gpt-oss: '<|end|>'
    and '<|start|>', where the last one has '<|return|>'); a single one opens the next message.
    """
    tokens = [re.escape(token) for token in tokenizer.get_added_vocab()]
    shared = commonprefix([last, behind])
    whole = [found.end() for found in re.finditer("|".join([*tokens, r"\s"]), shared)]
    if shared[: max(whole, default=0)].strip():
        return shared[: whole[-1]]
    prompted = _render(until, tokenizer, add_generation_prompt=True).rpartition(_STAND_IN)[2]
    shared = commonprefix([prompted, behind])
    whole = [found.end() for found in re.finditer("|".join(tokens), shared)] if tokens else []
    return shared[: whole[0]] if len(whole) > 1 else ""


def _render(messages: Messages, tokenizer: ChatTokenizer, **keywords: Any) -> Any:  # noqa: ANN401
    try:
        return tokenizer.apply_chat_template(list(messages), **{"tokenize": False, **keywords})
    except Exception as error:  # jinja2's errors, and whatever a template's own filters raise
        raise InvalidDocument(f"is refused by the chat template: {error}") from error


def _require_messages(messages: object) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        kind = type(messages).__name__ if messages else "no messages"
        raise InvalidDocument(f"has {kind} where a non-empty list of messages is needed")
    for turn, message in enumerate(messages):
        if not isinstance(message, Mapping) or "role" not in message:
            raise InvalidDocument(
                f"has a message {turn} without a role; each needs role and content"
            )
