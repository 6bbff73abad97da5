"""Questions and answers in the records of an output, read without the packer's own code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeAlias

Values: TypeAlias = Mapping[str, Any]
PAIRS = "preference"
"""The kind of records that have two answers to one question."""
_ASSISTANT = {"gpt", "assistant", "chatgpt", "model", "bot", "function_call"}
_OTHERS = {
    "human": "user", "user": "user", "system": "system",
    "tool": "tool", "observation": "tool", "function_response": "tool",
}  # fmt: skip
_NEEDED: dict[str, tuple[str, ...]] = {
    PAIRS: ("chosen", "rejected"),
    "prompt_completion": ("prompt", "completion"),
    "instruction": ("instruction", "output"),
}
_ALSO: dict[str, tuple[str, ...]] = {
    "sharegpt": ("system",),
    PAIRS: ("prompt",),
    "instruction": ("input",),
}
_ALPACA = (
    "Below is an instruction that describes a task{paired}. Write a response that appropriately "
    "completes the request.\n\n### Instruction:\n{asked}\n\n{given}### Response:\n"
)


class NotOfItsKind(Exception):
    """A record does not hold what the others hold."""


class Talk(NamedTuple):
    """Messages, of which the first ones are the question."""

    messages: Sequence[Any]
    tools: object = None
    asked: int = 0


class Text(NamedTuple):
    """A text, of which the first characters are the question."""

    text: str
    asked: int


def keys_of(options: Values) -> tuple[str, ...]:
    """The fields that are read of a record."""
    kind, tools = str(options.get("record_kind")), options.get("tools_column")
    needed = _NEEDED.get(kind) or (options["messages_column"],)
    return tuple(dict.fromkeys([*needed, *_ALSO.get(kind, ()), *([tools] if tools else [])]))


def answers_of(record: Values, options: Values, is_chat: bool) -> list[Talk | Text]:
    """What a record holds: one conversation or text, or two of a preference pair."""
    kind = options.get("record_kind")
    tools = record.get(options.get("tools_column") or "")
    if kind is None or kind == "sharegpt":
        return [_conversation(record, options, tools, kind)]
    if kind == "instruction":
        return [_instruction(record, is_chat)]
    found: list[Any] = [record.get(name) for name in _NEEDED[kind]]
    one, other = found
    if kind == "prompt_completion":
        return _parts(one, [other], tools, is_chat)
    if record.get("prompt"):
        return _parts(record["prompt"], [one, other], tools, is_chat)
    _require(list if is_chat else str, one, other)
    most = min(len(one), len(other)) - 1
    same = zip(one[: max(most, 0)], other, strict=False)
    shared = len(list(takewhile(lambda both: both[0] == both[1], same)))
    if not is_chat and shared and one[shared - 1] == " ":
        shared -= 1
    return _parts(one[:shared], [one[shared:], other[shared:]], tools, is_chat)


def _require(kind: type, *values: object) -> None:
    if not all(isinstance(value, kind) for value in values):
        raise NotOfItsKind


def _parts(asked: Any, answers: list[Any], tools: object, is_chat: bool) -> list[Any]:  # noqa: ANN401
    _require(list if is_chat else str, asked, *answers)
    if is_chat:
        return [Talk([*asked, *answer], tools, len(asked)) for answer in answers]
    return [Text(asked + answer, len(asked)) for answer in answers]


def _conversation(record: Values, options: Values, tools: object, kind: str | None) -> Talk:
    turns: Any = record.get(options["messages_column"])
    _require(list, turns)
    if kind is None:
        return Talk(turns, tools)
    messages = [_spoken(turn) for turn in turns or ()]
    system = record.get("system")
    if system and isinstance(system, str) and messages and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": system}, *messages]
    return Talk(messages, tools)


def _spoken(turn: object) -> dict[str, Any]:
    _require(dict, turn)
    speaker, said = turn.get("from"), turn.get("value")  # type: ignore[attr-defined]
    if said is not None:
        _require(str, said)
    if speaker == "function_call":
        try:
            calls = json.loads(said)
        except (TypeError, ValueError):
            raise NotOfItsKind from None
        listed = calls if isinstance(calls, list) else [calls]
        if not all(isinstance(call, dict) and "name" in call for call in listed):
            raise NotOfItsKind
        called = [{"type": "function", "function": call} for call in listed]
        return {"role": "assistant", "content": "", "tool_calls": called}
    role = "assistant" if speaker in _ASSISTANT else _OTHERS.get(speaker)
    _require(str, role)
    return {"role": role, "content": said or ""}


def _instruction(record: Values, is_chat: bool) -> Any:  # noqa: ANN401
    found: list[Any] = [record.get(name) for name in ("instruction", "input", "output")]
    asked, given, said = found
    given = "" if given is None else given
    _require(str, asked, given, said)
    if is_chat:
        question = "\n\n".join(part for part in (asked, given) if part or part is asked)
        roles = zip(("user", "assistant"), (question, said), strict=True)
        return Talk([{"role": role, "content": content} for role, content in roles])
    paired = ", paired with an input that provides further context" if given else ""
    context = f"### Input:\n{given}\n\n" if given else ""
    prompt = _ALPACA.format(paired=paired, asked=asked, given=context)
    return Text(prompt + str(said), len(prompt))
