"""One turn of the assistant in a rendered conversation, found by rendering it again.

Exact for any template in which a turn can be found, and slow: each turn renders the conversation
three times or more. `quire.text.turns` uses it for what it cannot recognize.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import NamedTuple

from quire.errors import InvalidDocument
from quire.text.chat_template import ChatTemplate, Messages

_STAND_IN = "quire-stand-in-for-what-the-assistant-says"


class Turn(NamedTuple):
    """Where a turn is in the rendered text."""

    start: int
    """After the generation prompt."""
    content_stop: int
    stop: int
    """After the end-of-turn token."""


def search_turn(turn: int, messages: Messages, text: str, template: ChatTemplate) -> Turn:
    """The turn that is the message of this number.

    The end of what is said is found from behind, by rendering a stand-in in its place: templates
    strip contents, and drop the thoughts of earlier turns.
    """
    other = {**messages[turn], "content": _STAND_IN}
    rendered = template.render([*messages[:turn], other, *messages[turn + 1 :]])
    before, found, behind = rendered.rpartition(_STAND_IN)
    if turn:  # most templates refuse an empty conversation
        before = template.render(messages[:turn], add_generation_prompt=True)
    if not (found and text.startswith(before) and text.endswith(behind)):
        raise InvalidDocument(
            f"has a turn of the assistant, its message {turn}, that cannot be found in what the "
            "chat template renders; give the tokenizer a template with {% generation %} blocks, "
            "or use assistant_only=False"
        )
    stop = len(text) - len(behind)
    closing = _closing([*messages[:turn], other], behind, template)
    return Turn(len(before), stop, stop + closing)


def _closing(until: Messages, behind: str, template: ChatTemplate) -> int:
    """Characters from the end of the content to the end of the turn, its closing token included."""
    eos = template.tokenizer.eos_token
    blank = len(behind) - len(behind.lstrip())
    if eos and behind.startswith(eos, blank):
        return blank + len(eos)
    rest = template.render(until).rpartition(_STAND_IN)[2]
    if not behind.startswith(rest):  # the template closes its last turn in a way of its own
        rest = _end_of_any(until, rest, behind, template)
    at_eos = rest.find(eos) if eos else -1
    return len(rest.rstrip()) if at_eos < 0 else at_eos + len(eos or "")


def _end_of_any(until: Messages, last: str, behind: str, template: ChatTemplate) -> str:
    """What closes a turn that is not the last one, which closes with ``last``.

    It is what the two share (Phi-3: '<|end|>', where EOS follows the last one), as far as the last
    blank or whole token, since '<|' of the next message may be shared too. Where they share
    nothing, it is the first of two tokens that stand before whoever speaks next (gpt-oss: '<|end|>'
    and '<|start|>', where the last one has '<|return|>'); a single one opens the next message.
    """
    tokens = [re.escape(token) for token in template.tokenizer.get_added_vocab()]
    shared = _shared(last, behind)
    whole = [found.end() for found in re.finditer("|".join([*tokens, r"\s"]), shared)]
    if shared[: max(whole, default=0)].strip():
        return shared[: whole[-1]]
    prompted = template.render(until, add_generation_prompt=True).rpartition(_STAND_IN)[2]
    shared = _shared(prompted, behind)
    whole = [found.end() for found in re.finditer("|".join(tokens), shared)] if tokens else []
    return shared[: whole[0]] if len(whole) > 1 else ""


def _shared(one: str, other: str) -> str:
    """How both begin.

    >>> _shared("<|end|><|user|>", "<|end|><|assistant|>")
    '<|end|><|'
    """
    pairs = zip(one, other, strict=False)
    return "".join(here for here, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
