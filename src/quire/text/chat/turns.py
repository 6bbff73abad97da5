"""The assistant's turns in the text that a chat template renders.

A template opens and closes every turn in the same few ways. They are learned once, from a probe
conversation, and then recognized: one rendering per conversation, in linear time. A turn that is
not recognized with certainty is searched for by rendering the conversation again (`search_turn`):
exact for any template in which a turn can be found, but slow, with three or more renderings per
turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from quire.errors import InvalidDocument
from quire.text.chat.template import ChatTemplate, Messages

_PROBE = [
    {"role": "user", "content": "quire-first-question"},
    {"role": "assistant", "content": "quire-first-answer"},
    {"role": "user", "content": "quire-second-question"},
    {"role": "assistant", "content": "quire-second-answer"},
]
_END_OF_THOUGHTS = "</think>"
_PLACEHOLDER = "quire-placeholder-for-the-content"


@dataclass(frozen=True, kw_only=True)
class TurnForm:
    """How a template writes the assistant's turns."""

    opener: str
    """Ends where a turn starts, and is written once for every turn: the generation prompt."""
    leads: tuple[str, ...]
    """What the template may write between the opener and the content."""
    closing: str
    """From the content to the end of a turn, if another message follows."""
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
        """Where the turn that begins at ``start`` ends, before ``limit``; -1 if uncertain."""
        content, closing = message["content"], self.last_closing if last else self.closing
        if not isinstance(content, str):
            return -1
        if set(message) <= {"role", "content"} and _END_OF_THOUGHTS not in content:
            return self._stop_of_content(content, closing, text, start, limit)
        return self._stop_of_more(message, content, closing.strip(), text, start, limit)

    def _stop_of_content(
        self, content: str, closing: str, text: str, start: int, limit: int
    ) -> int:
        """The end of a turn that consists of lead, content and closing."""
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
        """The end of a turn with thoughts or tool calls: its only special token is its last."""
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
    """(start, stop) of each turn: from the generation prompt's end to its end-of-turn token."""
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
    """The generation prompt; without one, the text that follows the user's content."""
    plain, prompted = (template.render(_PROBE[:1], add_generation_prompt=p) for p in (False, True))
    if prompted.startswith(plain) and prompted[len(plain) :].strip():
        return prompted[len(plain) :]
    return prompted.rpartition(_PROBE[0]["content"])[2]


def _special_tokens(template: ChatTemplate) -> re.Pattern[str]:
    added = getattr(template.tokenizer, "added_tokens_decoder", {}).values()
    special = sorted((str(token) for token in added if token.special), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, special)) or r"(?!)")


class Turn(NamedTuple):
    """Where a turn is in the rendered text."""

    start: int
    """After the generation prompt."""
    content_stop: int
    stop: int
    """After the end-of-turn token."""


def search_turn(turn: int, messages: Messages, text: str, template: ChatTemplate) -> Turn:
    """Where message number ``turn`` is in the text.

    The end of its content is found from the end of the text, by rendering a placeholder instead:
    templates strip content, and drop the thoughts of earlier turns.
    """
    other = {**messages[turn], "content": _PLACEHOLDER}
    rendered = template.render([*messages[:turn], other, *messages[turn + 1 :]])
    before, found, after = rendered.rpartition(_PLACEHOLDER)
    if turn:  # most templates refuse an empty conversation
        before = template.render(messages[:turn], add_generation_prompt=True)
    if not (found and text.startswith(before) and text.endswith(after)):
        raise InvalidDocument(
            f"has an assistant turn, message {turn}, that cannot be found in the rendered text; "
            "give the tokenizer a template with {% generation %} blocks, or use "
            "assistant_only=False"
        )
    stop = len(text) - len(after)
    closing = _closing([*messages[:turn], other], after, template)
    return Turn(len(before), stop, stop + closing)


def _closing(until: Messages, after: str, template: ChatTemplate) -> int:
    """Characters from the end of the content to the end of the turn, its closing token included."""
    eos = template.tokenizer.eos_token
    blank = len(after) - len(after.lstrip())
    if eos and after.startswith(eos, blank):
        return blank + len(eos)
    rest = template.render(until).rpartition(_PLACEHOLDER)[2]
    if not after.startswith(rest):  # the template closes its last turn differently
        rest = _closing_of_inner_turn(until, rest, after, template)
    at_eos = rest.find(eos) if eos else -1
    return len(rest.rstrip()) if at_eos < 0 else at_eos + len(eos or "")


def _closing_of_inner_turn(until: Messages, last: str, after: str, template: ChatTemplate) -> str:
    """What closes a turn that is not the last one; the last one closes with ``last``.

    It is what both share (Phi-3: '<|end|>', and EOS after the last one), up to the last blank or
    whole token, since '<|' of the next message may be shared too. If they share nothing, it is the
    first of two tokens before the next message (gpt-oss: '<|end|>' and '<|start|>', where the last
    turn has '<|return|>'); a single token opens the next message.
    """
    tokens = [re.escape(token) for token in template.tokenizer.get_added_vocab()]
    shared = _shared(last, after)
    whole = [found.end() for found in re.finditer("|".join([*tokens, r"\s"]), shared)]
    if shared[: max(whole, default=0)].strip():
        return shared[: whole[-1]]
    prompted = template.render(until, add_generation_prompt=True).rpartition(_PLACEHOLDER)[2]
    shared = _shared(prompted, after)
    whole = [found.end() for found in re.finditer("|".join(tokens), shared)] if tokens else []
    return shared[: whole[0]] if len(whole) > 1 else ""


def _shared(one: str, other: str) -> str:
    """The common start of both.

    >>> _shared("<|end|><|user|>", "<|end|><|assistant|>")
    '<|end|><|'
    """
    pairs = zip(one, other, strict=False)
    return "".join(here for here, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
