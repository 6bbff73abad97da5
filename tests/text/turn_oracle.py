"""Turns found by rendering each one, in quadratic time; the oracle for faster ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from quire.errors import InvalidDocument
from quire.text.chat.template import ChatTemplate, Messages

_STAND_IN = "quire-stand-in-for-what-the-assistant-says"


def find_turns(messages: Messages, text: str, template: ChatTemplate) -> Iterator[tuple[int, int]]:
    """(start, stop) of each: from the generation prompt's end to after the end-of-turn token."""
    for turn, message in enumerate(messages):
        if message["role"] == "assistant":
            yield _turn(turn, messages, text, template)


def _turn(turn: int, messages: Messages, text: str, template: ChatTemplate) -> tuple[int, int]:
    """One of them.

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
            f"has an assistant turn, message {turn}, that cannot be found in the rendered text; "
            "give the tokenizer a template with {% generation %} blocks, or use "
            "assistant_only=False"
        )
    stop = len(text) - len(behind)
    return len(before), stop + _closing([*messages[:turn], other], behind, template)


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
