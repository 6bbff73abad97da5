"""The assistant's turns in the text that a chat template renders.

A template opens and closes every turn in the same few ways. They are learned once, from a
conversation of our own, and then recognized: one rendering a conversation, in linear time. A turn
that is not recognized beyond doubt is searched for by rendering it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quire.errors import InvalidDocument
from quire.text.chat_template import ChatTemplate, Messages
from quire.text.turn_search import search_turn

_PROBE = [
    {"role": "user", "content": "quire-first-question"},
    {"role": "assistant", "content": "quire-first-answer"},
    {"role": "user", "content": "quire-second-question"},
    {"role": "assistant", "content": "quire-second-answer"},
]
_END_OF_THOUGHTS = "</think>"


@dataclass(frozen=True, kw_only=True)
class TurnForm:
    """How a template writes the assistant's turns."""

    opener: str
    """Ends where a turn starts, and is written once for every turn: the generation prompt."""
    leads: tuple[str, ...]
    """What the template may write between the opener and the content."""
    closing: str
    """From the content to the end of a turn that something follows."""
    last_closing: str
    special: re.Pattern[str]
    """Any special token."""

    @classmethod
    def learned(cls, template: ChatTemplate) -> TurnForm | None:
        """The form of a template, or None if a plain conversation does not show it."""
        try:
            text = template.render(_PROBE)
            turns = [search_turn(number, _PROBE, text, template) for number in (1, 3)]
            opener = _opener(template)
        except InvalidDocument:
            return None
        leads = [
            text[turn.start : turn.content_stop].removesuffix(_PROBE[number]["content"])
            for number, turn in zip((1, 3), turns, strict=True)
        ]
        closing, last_closing = (text[turn.content_stop : turn.stop] for turn in turns)
        if not opener.strip() or text.count(opener) != len(turns):
            return None
        return cls(
            opener=opener,
            leads=tuple(dict.fromkeys(leads)),
            closing=closing,
            last_closing=last_closing,
            special=_special_tokens(template),
        )

    def starts(self, text: str, num_turns: int) -> list[int] | None:
        """Where the turns start, if there are as many openers as turns."""
        found = [match.end() for match in re.finditer(re.escape(self.opener), text)]
        return found if len(found) == num_turns else None

    def stop(self, message: dict[str, Any], text: str, start: int, limit: int, last: bool) -> int:
        """Where the turn that starts there stops, before ``limit``; -1 if that is in doubt."""
        content, closing = message["content"], self.last_closing if last else self.closing
        if not isinstance(content, str):
            return -1
        if set(message) <= {"role", "content"} and _END_OF_THOUGHTS not in content:
            return self._stop_of_content(content, closing, text, start, limit)
        return self._stop_of_more(message, content, closing.strip(), text, start, limit)

    def _stop_of_content(
        self, content: str, closing: str, text: str, start: int, limit: int
    ) -> int:
        """The stop of a turn that is nothing but lead, content and closing."""
        stripped = content.strip()
        if not closing[:1].strip() and (stripped != content or len(self.leads) > 1):
            return -1  # nothing shows where the content ends
        for lead in self.leads:
            for said in (content, stripped):
                whole = lead + said + closing
                if text.startswith(whole, start) and start + len(whole) <= limit:
                    return start + len(whole)
        return -1

    def _stop_of_more(
        self, message: dict[str, Any], content: str, token: str, text: str, start: int, limit: int
    ) -> int:
        """The stop of a turn with thoughts or tool calls: its only special token is its end."""
        if self.special.fullmatch(token) is None or self.special.search(str(message)):
            return -1
        first = self.special.search(text, start, limit)
        if first is None or first.group() != token:
            return -1
        said = content.rpartition(_END_OF_THOUGHTS)[2].strip()
        written = text[start : first.start()]
        is_there = said in written if message.get("tool_calls") else written.strip().endswith(said)
        return first.end() if is_there else -1


def find_turns(
    messages: Messages, text: str, template: ChatTemplate, form: TurnForm | None
) -> Iterator[tuple[int, int]]:
    """(start, stop) of each: from the end of the generation prompt to the end-of-turn token's."""
    numbers = [turn for turn, message in enumerate(messages) if message["role"] == "assistant"]
    starts = form.starts(text, len(numbers)) if form else None
    limits = [*(starts or ())[1:], len(text)]
    for place, turn in enumerate(numbers):
        stop = -1
        if form and starts and turn:  # nothing precedes the first message, so nothing opens it
            last = turn == len(messages) - 1
            stop = form.stop(dict(messages[turn]), text, starts[place], limits[place], last)
        if stop < 0:
            found = search_turn(turn, messages, text, template)
            yield found.start, found.stop
        elif starts:
            yield starts[place], stop


def _opener(template: ChatTemplate) -> str:
    """The generation prompt; where there is none, what follows the content of the user."""
    plain, prompted = (template.render(_PROBE[:1], add_generation_prompt=p) for p in (False, True))
    if prompted.startswith(plain) and prompted[len(plain) :].strip():
        return prompted[len(plain) :]
    return prompted.rpartition(_PROBE[0]["content"])[2]


def _special_tokens(template: ChatTemplate) -> re.Pattern[str]:
    added = getattr(template.tokenizer, "added_tokens_decoder", {}).values()
    special = sorted((str(token) for token in added if token.special), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, special)) or r"(?!)")
