"""Conversations, rendered again: by the tokenizer's own methods, not by the code that packs."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.text.chat_date import FIXED_NOW, directives
from quire.text.chat_template import ChatTokenizer
from quire.text.tokenizer import CalledTokenizer

Mask = npt.NDArray[np.bool]
_ASKS_FOR_DATE = re.compile(r"""strftime_now\(\s*(?:format\s*=\s*)?(["'])(.*?)\1\s*\)""")
_ASKS_WHETHER = re.compile(r"strftime_now\s+is\s+(not\s+)?defined")
_MARKS = re.compile(r"\{%-?\s*generation\s*-?%\}")
_CERTAIN = 16
"""Texts of so many characters that occur once are taken to be where a message was written."""


class Chats:
    """Messages and tools to tokens, and of some tokens who says them."""

    def __init__(self, tokenizer: ChatTokenizer, date: str | None) -> None:
        self._tokenizer: Any = tokenizer
        self._encoder = CalledTokenizer(self._tokenizer)  # a call would write to the caller's
        self._date = None if date is None else datetime.datetime.fromisoformat(date)

    def __call__(
        self, messages: Sequence[Any], tools: object
    ) -> tuple[npt.NDArray[np.int64], Mask, Mask]:
        """Token ids, tokens that the assistant says for certain, and tokens that others say.

        A message is found by its text, if that is long enough and occurs once in the rendered
        conversation. Nothing is known of the other tokens, nor where the template itself marks
        what is trained, which need not be all that the assistant says.
        """
        turns = [_filled(message) for message in messages]
        listed = json.loads(tools) if isinstance(tools, str) and tools else tools
        given = {"tools": listed} if listed else {}
        source = self._tokenizer.get_chat_template(**given)
        text: str = self._tokenizer.apply_chat_template(
            turns, tokenize=False, **self._dated(source), **given
        )
        tokens, characters = self._encoder.encode_with_offsets(text)
        ids = np.array(tokens, dtype=np.int64)
        offsets = np.array(characters, dtype=np.int64).reshape(-1, 2)
        found = [] if _MARKS.search(source) else turns
        said, heard = (_inside(offsets, _places(found, text, own)) for own in (True, False))
        return ids, said & ~heard, heard & ~said

    def _dated(self, source: str) -> dict[str, Any]:
        """The template with the date of the manifest where it asks for today's."""
        date = self._date
        if date is None:
            return {"chat_template": source}
        dated = _ASKS_FOR_DATE.sub(lambda match: repr(date.strftime(match[2])), source)
        dated = _ASKS_WHETHER.sub(lambda match: "false" if match[1] else "true", dated)
        if "strftime_now" not in dated:
            return {"chat_template": dated}
        # It computes the format, which only the packer's own way can follow.
        return {"chat_template": FIXED_NOW + source, "quire_date": directives(date.date())}


def _filled(message: Any) -> Any:  # noqa: ANN401 - a JSON value
    """A message without nulls, and with content."""
    if not isinstance(message, dict):
        return message
    given = {key: value for key, value in message.items() if value is not None}
    return {"content": "", **given} if "role" in given else given


def _places(turns: Sequence[Any], text: str, own: bool) -> Iterator[tuple[int, int]]:
    """Where the assistant's messages, or those of others, are for certain."""
    for turn in turns:
        content = turn.get("content")
        if isinstance(content, str) and (turn.get("role") == "assistant") is own:
            content = content.strip()
            if len(content) >= _CERTAIN and text.count(content) == 1:
                start = text.index(content)
                yield start, start + len(content)


def _inside(offsets: npt.NDArray[np.int64], places: Iterator[tuple[int, int]]) -> Mask:
    """The tokens that lie wholly inside one of the places."""
    inside = np.zeros(len(offsets), dtype=bool)
    for start, stop in places:
        begins, ends = offsets.T
        inside |= (begins >= start) & (ends <= stop) & (begins < ends)
    return inside
