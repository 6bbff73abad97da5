"""Conversations to tokens, with labels on the assistant's turns."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.bad_records import BadRecords
from quire.formats.record_kinds import Conversation
from quire.formats.token_columns import as_documents
from quire.options.names import setting
from quire.options.rules import iso_date
from quire.text.chat.date import today
from quire.text.chat.labels import Rendered, label_by_offsets, label_fast
from quire.text.chat.template import ChatTemplate, ChatTokenizer, Messages
from quire.text.chat.turns import TurnForm, find_turns
from quire.text.encoded import Encoded
from quire.text.fast_tokenizer import FastTokenizer
from quire.text.giant_words import giant_word
from quire.text.tokenizer import CalledTokenizer, Tokenizer

Marked: TypeAlias = tuple[str, Iterable[tuple[int, int]]]
"""The text, and (start, stop) of the assistant's turns in it."""


class ConversationEncoder:
    """Messages, and the tools that they may call, to ids and labels."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        assistant_only: bool,
        date: datetime.date,
        engine: Tokenizer | None,
    ) -> None:
        self._template = ChatTemplate(tokenizer, date)
        self._find = _turns_of(self._template) if assistant_only else None
        _ = self._template.source  # raises before the first record if there is none
        self._fast = engine if isinstance(engine, FastTokenizer) else None
        reference = engine.reference if isinstance(engine, FastTokenizer) else engine
        self._encoder = (
            reference if isinstance(reference, CalledTokenizer) else CalledTokenizer(tokenizer)
        )

    def __call__(
        self, messages: Messages, tools: object = None, num_prompt: int = 0
    ) -> tuple[list[int], list[int]]:
        """The ids and labels of one conversation, by `tokenizers`."""
        return label_by_offsets(self.render(messages, tools, num_prompt), self._encoder)

    def render(self, messages: Messages, tools: object = None, num_prompt: int = 0) -> Rendered:
        """The text of a conversation, and the assistant's turns after the prompt in it."""
        if isinstance(messages, UnicodeDecodeError) or isinstance(tools, UnicodeDecodeError):
            raise InvalidDocument("is not UTF-8")
        messages = _checked(messages)
        template = self._template.with_tools(tools)
        if self._find is None:
            rendered = Rendered(template.render(messages), None)
        else:
            text, turns = self._find(messages, template)
            rendered = Rendered(text, _after(messages, num_prompt, list(turns)))
        require_encodable(rendered.text)
        if problem := giant_word(rendered.text):
            raise InvalidDocument(problem)
        return rendered

    def render_sample(self, sample: Conversation) -> Rendered:
        """The text of a conversation, and what of it is trained."""
        return self.render(*sample)

    def as_documents(
        self, ids: Encoded, labels: npt.NDArray[np.int32], bad: BadRecords
    ) -> Documents:
        """The documents as they were rendered: a template writes special tokens itself."""
        columns = {"input_ids": pa.array(ids.tokens), "labels": pa.array(labels)}
        return as_documents(columns, ids.lengths, bad)

    def encode_batch(self, batch: Sequence[Rendered]) -> tuple[Encoded, npt.NDArray[np.int32]]:
        """The ids of many conversations, by the fast engine if there is one, and their labels."""
        fast = self._fast
        if fast is not None and fast.is_fast and fast.token_bytes is not None:
            return label_fast(batch, fast)
        found = [label_by_offsets(rendered, self._encoder) for rendered in batch]
        labels = Encoded.of_lists(labels for _, labels in found)
        return Encoded.of_lists(ids for ids, _ in found), labels.tokens


def conversation_encoder(
    tokenizer: ChatTokenizer,
    assistant_only: bool = True,
    date: datetime.date | str | None = None,
    engine: Tokenizer | None = None,
) -> ConversationEncoder:
    """A function from messages to (input_ids, labels), as the chat template renders them.

    With ``assistant_only``, labels are -100 everywhere except in the assistant's turns. If the
    template marks these itself (generation blocks), its marks are used; otherwise the turns are
    found in the rendered text. Tools are passed to the template. Content that is null or absent,
    as next to tool calls, is empty text. A template that asks for the date gets ``date``, or
    today's, the same for all conversations. The function raises `InvalidDocument` with a message
    that completes "record 7 ...". ``engine`` is the same tokenizer, opened by `open_tokenizer`; it
    encodes batches.
    """
    day = today() if date is None else datetime.date.fromisoformat(iso_date("chat_date", date))
    return ConversationEncoder(tokenizer, assistant_only, day, engine)


def _after(
    messages: Sequence[Mapping[str, Any]], num_prompt: int, turns: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The assistant's turns without those in the prompt, the first messages."""
    speakers = [message["role"] == "assistant" for message in messages]
    if not any(speakers[:num_prompt]):
        return turns
    if len(turns) != sum(speakers):
        raise InvalidDocument(
            "has a prompt in which the assistant speaks, and a chat template that does not mark "
            "every turn of the assistant; leave the prompt's answers out, or use another template"
        )
    return turns[sum(speakers[:num_prompt]) :]


def require_encodable(text: str) -> None:
    """Raise for half a surrogate pair, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidDocument(
            f"has half a surrogate pair at character {error.start} of its rendered text"
        ) from error


def _turns_of(plain: ChatTemplate) -> Callable[[Messages, ChatTemplate], Marked]:
    """A function from messages and the template with their tools to the text and its turns."""
    if not getattr(plain.tokenizer, "is_fast", False):
        raise InvalidOption(
            f"{type(plain.tokenizer).__name__} is a slow tokenizer, which does not report the "
            f"characters of its tokens; use a fast tokenizer, or {setting('assistant_only', False)}"
        )
    source = plain.source
    form = None if plain.marks_the_assistant else TurnForm.learned(plain)

    def find(messages: Messages, template: ChatTemplate) -> Marked:
        if template.marks_the_assistant:
            return template.render_marked(messages)
        text = template.render(messages)
        # A tokenizer may have a template of its own for conversations with tools.
        known = form if template.source == source else None
        return text, find_turns(messages, text, template, known)

    return find


def _checked(messages: object) -> list[dict[str, Any]]:
    """The messages without nulls, so that all paths give a template the same.

    Content that is null or absent becomes empty, other keys with nulls are left out. Arrow does not
    tell these apart, and templates write a null as 'None' or reject it.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        kind = type(messages).__name__ if messages else "no messages"
        raise InvalidDocument(f"has {kind} where a non-empty list of messages is needed")
    return [_checked_message(turn, message) for turn, message in enumerate(messages)]


def _checked_message(turn: int, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping) or message.get("role") is None:
        raise InvalidDocument(f"has a message {turn} without a role; each needs role and content")
    given = {key: value for key, value in message.items() if value is not None}
    content = given.get("content", "")
    return {**given, "content": content if isinstance(content, str) else _text_of(turn, content)}


def _text_of(turn: int, parts: object) -> object:
    """The text of content that is a list of parts, of which templates for text know none."""
    if not isinstance(parts, Sequence):
        return parts
    texts = [part if isinstance(part, str) else _part_text(turn, part) for part in parts]
    return "".join(texts)


def _part_text(turn: int, part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        raise InvalidDocument(
            f"has a part of type {str(kind)[:40]} in message {turn}; only text can be rendered, "
            "and quire.vision packs images"
        )
    return text
