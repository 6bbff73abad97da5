"""Conversations to tokens, with labels on the assistant's turns."""

from __future__ import annotations

import datetime
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.bad_records import BadRecords
from quire.formats.token_columns import as_documents
from quire.options.rules import iso_date
from quire.text.chat.date import today
from quire.text.chat.template import ChatTemplate, ChatTokenizer, Messages
from quire.text.chat.turns import TurnForm, find_turns
from quire.text.encoded import Encoded
from quire.text.tokenizer import CalledTokenizer

IGNORE = -100

Rendered: TypeAlias = tuple[str, Iterable[tuple[int, int]]]
"""The text, and (start, stop) of the assistant's turns in it."""


class Encode(Protocol):
    """Messages, and the tools that they may call, to (input_ids, labels)."""

    def __call__(  # noqa: D102
        self, messages: Messages, tools: object = None
    ) -> tuple[list[int], list[int]]: ...


def conversation_encoder(
    tokenizer: ChatTokenizer,
    assistant_only: bool = True,
    date: datetime.date | str | None = None,
) -> Encode:
    """A function from messages to (input_ids, labels), as the chat template renders them.

    With ``assistant_only``, labels are -100 everywhere except in the assistant's turns. If the
    template marks these itself (generation blocks), its marks are used; otherwise the turns are
    found in the rendered text. Tools are passed to the template. Content that is null or absent,
    as next to tool calls, is empty text. A template that asks for the date gets ``date``, or
    today's, the same for all conversations. The function raises `InvalidDocument` with a message
    that completes "record 7 ...".
    """
    day = today() if date is None else datetime.date.fromisoformat(iso_date("chat_date", date))
    plain = ChatTemplate(tokenizer, day)
    find = _turns_of(plain) if assistant_only else None
    _ = plain.source  # raises before the first record if there is none
    encoder = CalledTokenizer(tokenizer)

    def encode(messages: Messages, tools: object = None) -> tuple[list[int], list[int]]:
        if isinstance(messages, UnicodeDecodeError) or isinstance(tools, UnicodeDecodeError):
            raise InvalidDocument("is not UTF-8")
        messages = _checked(messages)
        template = plain.with_tools(tools)
        if find is None:
            ids: list[int] = encoder.encode_batch([template.render(messages)]).tokens.tolist()
            return ids, list(ids)
        return _labelled(*find(messages, template), encoder)

    return encode


def encode_conversations(
    conversations: Iterable[tuple[Messages, object]],
    encode: Encode,
    bad: BadRecords,
    problem: Callable[[InvalidDocument], str] = str,
) -> Documents:
    """One document per conversation and its tools, with labels.

    What cannot be encoded is a bad record; ``problem`` says what to report of the error.
    """
    encoded: list[tuple[list[int], list[int]]] = []
    for number, (messages, tools) in enumerate(conversations):
        try:
            encoded.append(encode(messages, tools))
        except InvalidDocument as error:
            bad.add(number, problem(error))
            encoded.append(([], []))
    ids = Encoded.of_lists(tokens for tokens, _ in encoded)
    labels = Encoded.of_lists(targets for _, targets in encoded)
    columns = {"input_ids": pa.array(ids.tokens), "labels": pa.array(labels.tokens)}
    return as_documents(columns, ids.lengths, bad)


def _turns_of(plain: ChatTemplate) -> Callable[[Messages, ChatTemplate], Rendered]:
    """A function from messages and the template with their tools to the text and its turns."""
    if not getattr(plain.tokenizer, "is_fast", False):
        raise InvalidOption(
            f"{type(plain.tokenizer).__name__} is a slow tokenizer, which does not report the "
            "characters of its tokens; use a fast tokenizer, or assistant_only=False"
        )
    source = plain.source
    form = None if plain.marks_the_assistant else TurnForm.learned(plain)

    def find(messages: Messages, template: ChatTemplate) -> Rendered:
        if template.marks_the_assistant:
            return template.render_marked(messages)
        text = template.render(messages)
        # A tokenizer may have a template of its own for conversations with tools.
        known = form if template.source == source else None
        return text, find_turns(messages, text, template, known)

    return find


def _labelled(
    text: str, turns: Iterable[tuple[int, int]], encoder: CalledTokenizer
) -> tuple[list[int], list[int]]:
    """The tokens of the text, and labels on every token that holds a character of a turn.

    A token that includes a space of the prompt, or a line end of the template, still belongs to
    the answer, as in the mask of transformers: otherwise ' Yes' is never learned. That mask is not
    used: it looks for one token at each edge, so it misses the rest of a character that has several
    tokens, and extends into the user's turn if the last token was trimmed.
    """
    ids, offsets = encoder.encode_with_offsets(text)
    starts, stops = [-1], [-1]
    for start, stop in turns:
        if start < stop:
            starts.append(start)
            stops.append(stop)
    # Turns follow each other, so the last one that starts before a token's end decides.
    labels = [
        token if begin < stops[bisect_left(starts, end) - 1] else IGNORE
        for token, (begin, end) in zip(ids, offsets, strict=True)
    ]
    return ids, labels


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
    return given if "content" in given else {**given, "content": ""}
