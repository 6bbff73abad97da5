"""Conversations to tokens, for the check: by the tokenizer's own methods.

The labels of messages that can be located in the text with certainty are derived from that text
only; the packer finds the assistant's turns with code of its own.
"""

from __future__ import annotations

import copy
import datetime
import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from quire.text import TokenizerLike
from quire.text.chat.date import FIXED_NOW, directives
from quire.text.chat.template import ChatTokenizer, as_chat_tokenizer
from quire.text.tokenizer import CalledTokenizer
from quire.verify.inputs.answers import Talk

Mask: TypeAlias = npt.NDArray[np.bool]
_DATE_CALL = re.compile(r"""strftime_now\(\s*(?:format\s*=\s*)?(["'])(.*?)\1\s*\)""")
_DATE_TEST = re.compile(r"strftime_now\s+is\s+(not\s+)?defined")
_GENERATION_BLOCK = re.compile(r"\{%-?\s*generation\s*-?%\}")
_CERTAIN = 16
"""A message of this many characters that occurs once in the text can be located with certainty."""


def with_template(tokenizer: TokenizerLike, template: object) -> ChatTokenizer:
    """The tokenizer with the template of the manifest, if that records one (0.1.0 did not)."""
    chat_tokenizer = as_chat_tokenizer(tokenizer)
    if template is None:
        return chat_tokenizer
    own: Any = copy.copy(chat_tokenizer)
    own.chat_template = template
    return cast(ChatTokenizer, own)


class Renderer:
    """Conversations to tokens, by the tokenizer's own methods."""

    def __init__(self, tokenizer: ChatTokenizer, date: str | None) -> None:
        self._tokenizer: Any = tokenizer
        self._encoder = CalledTokenizer(self._tokenizer)  # a call would change the caller's
        self._date = None if date is None else datetime.datetime.fromisoformat(date)

    def render(self, talk: Talk) -> tuple[npt.NDArray[np.int64], Mask, Mask]:
        """Token ids, the tokens that are certainly the assistant's, and those that are others'.

        A message is located by its text, if that is long enough and occurs once in the rendered
        conversation. Where the template itself marks what is trained, nothing is certain: it need
        not mark everything that the assistant says.
        """
        turns, tools = [_without_nulls(message) for message in talk.messages], talk.tools
        listed = json.loads(tools) if isinstance(tools, str) and tools else tools
        given = {"tools": listed} if listed else {}
        template = self._tokenizer.get_chat_template(**given)
        text: str = self._tokenizer.apply_chat_template(
            turns, tokenize=False, **self._with_date(template), **given
        )
        tokens, characters = self._encoder.encode_with_offsets(text)
        offsets = np.array(characters, dtype=np.int64).reshape(-1, 2)
        located = [] if _GENERATION_BLOCK.search(template) else turns
        asked = [{**turn, "role": "question"} for turn in located[: talk.asked]]
        located = [*asked, *located[talk.asked :]]
        own, others = (_tokens_of(located, text, offsets, is_own) for is_own in (True, False))
        return np.array(tokens, dtype=np.int64), own & ~others, others & ~own

    def _with_date(self, template: str) -> dict[str, Any]:
        """The template with the recorded date in place of today's."""
        date = self._date
        if date is None:
            return {"chat_template": template}
        dated = _DATE_CALL.sub(lambda match: repr(date.strftime(match[2])), template)
        dated = _DATE_TEST.sub(lambda match: "false" if match[1] else "true", dated)
        if "strftime_now" not in dated:
            return {"chat_template": dated}
        # The template computes the format, so it needs the function that the packer gives it.
        return {"chat_template": FIXED_NOW + template, "quire_date": directives(date.date())}


def _without_nulls(message: Any) -> Any:  # noqa: ANN401 - a JSON value
    """A message without nulls, and with content."""
    if not isinstance(message, dict):
        return message
    given = {key: value for key, value in message.items() if value is not None}
    if isinstance(parts := given.get("content"), list):
        given["content"] = "".join(p if isinstance(p, str) else p["text"] for p in parts)
    return {"content": "", **given} if "role" in given else given


def _tokens_of(
    turns: Sequence[Any], text: str, offsets: npt.NDArray[np.int64], is_own: bool
) -> Mask:
    """The tokens that are wholly inside a located message of the assistant, or of the others."""
    inside = np.zeros(len(offsets), dtype=bool)
    starts, stops = offsets.T
    for turn in turns:
        content = turn.get("content")
        if isinstance(content, str) and (turn.get("role") == "assistant") is is_own:
            content = content.strip()
            if len(content) >= _CERTAIN and text.count(content) == 1:
                first = text.index(content)
                last = first + len(content)
                inside |= (starts >= first) & (stops <= last) & (starts < stops)
    return inside
