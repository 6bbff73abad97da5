"""What a record holds: the kinds in which people publish data, recognized from the first records.

Text and tokens are packed as they are. Every other kind is read as a `Conversation` or a
`Completion`, or as a `Pair` of these, of which the answer is trained and the question is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from quire.formats.arrays import is_list, is_number_list, is_text
from quire.options.names import option, setting

if TYPE_CHECKING:
    from quire.formats.fields import Fields
    from quire.formats.vision_records import VisionSample

Record: TypeAlias = Mapping[str, Any]
SEEN = 100
"""Records that are looked at."""


class RecordProblem(ValueError):
    """Why a record is bad; completes "record 7 ..." and repeats nothing of its content."""

    fits: str | None = None
    """What fits it better, for `remedy`: another kind of records, or another column."""


class Conversation(NamedTuple):
    """Messages, and the tools that they may call, as the record has them."""

    messages: list[Any]
    tools: object = None
    num_prompt: int = 0
    """The number of first messages that are not trained, whatever their role."""


class Completion(NamedTuple):
    """A text whose start is not trained."""

    prompt: str
    completion: str


Sample: TypeAlias = Conversation | Completion


class Pair(NamedTuple):
    """Two answers to one question, packed into one row."""

    chosen: Sample
    rejected: Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordKind:
    """One kind of records."""

    name: str
    holds: str
    """What messages call such records."""
    fits: Callable[[Record], bool]
    columns: tuple[str, ...] = ()
    """The columns that are read, besides those that options name."""
    optional: tuple[str, ...] = ()
    """Columns that are read where they exist."""
    read: Callable[[Record, Fields], Sample | Pair | VisionSample] | None = None


def required(record: Record, key: str, kind: type) -> Any:  # noqa: ANN401 - a JSON value
    """The value of a field, if it has this type; raises `RecordProblem`."""
    if key not in record:
        known = ", ".join(sorted(map(repr, record)))[:200]
        raise RecordProblem(f"has no {key!r} (it has {known or 'no field'})")
    value = record[key]
    if not isinstance(value, kind):
        given = "null" if value is None else type(value).__name__
        raise RecordProblem(f"has {given} under {key!r}, where {_NAMES[kind]} is needed")
    return value


_NAMES: dict[type, str] = {str: "a string", list: "a list"}


def is_conversation(value: object, key: str) -> bool:
    """Whether this is a list of messages that name their speaker under ``key``."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(message, Mapping) for message in value)
        and key in value[0]
    )


def _has_conversation(record: Record, key: str) -> bool:
    """Whether the first column of conversations has messages that name their speaker so."""
    value = next((record[name] for name in ("messages", "conversations") if record.get(name)), None)
    return is_conversation(value, key)


def _has_texts(record: Record, *names: str) -> bool:
    return all(isinstance(record.get(name), str) for name in names)


def _has_answers(record: Record, *names: str) -> bool:
    """Whether all of these are texts, or all are lists of messages."""
    return _has_texts(record, *names) or all(is_conversation(record.get(n), "role") for n in names)


def _fits_preference(record: Record) -> bool:
    names = ("chosen", "rejected")
    return _has_answers(record, *names, *(("prompt",) if record.get("prompt") else ()))


def _read_messages(record: Record, fields: Fields) -> Conversation:
    messages = required(record, fields.messages_column or "messages", list)
    if is_conversation(messages, "from") and "role" not in messages[0]:
        problem = RecordProblem("has messages with 'from', where 'role' is needed")
        problem.fits = "sharegpt"
        raise problem
    return Conversation(messages, fields.tools_of(record))


_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "model", "bot"), "assistant"),
    "system": "system",
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
}
_CALL = "function_call"


def _read_sharegpt(record: Record, fields: Fields) -> Conversation:
    turns = required(record, fields.messages_column or "conversations", list)
    messages = [_message(number, turn) for number, turn in enumerate(turns)]
    system = record.get("system")
    if isinstance(system, str) and system and messages and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": system})
    return Conversation(messages, fields.tools_of(record))


def _message(number: int, turn: object) -> dict[str, Any]:
    """A turn of ShareGPT as a message."""
    if not isinstance(turn, Mapping) or not isinstance(speaker := turn.get("from"), str):
        raise RecordProblem(f"has a turn {number} without 'from'; each needs from and value")
    value = turn.get("value")
    if value is not None and not isinstance(value, str):
        raise RecordProblem(f"has {type(value).__name__} as the value of turn {number}, not text")
    if speaker == _CALL:
        return {"role": "assistant", "content": "", "tool_calls": _calls(number, value)}
    if speaker not in _ROLES:
        known = ", ".join([*_ROLES, _CALL])
        raise RecordProblem(f"has a turn {number} from an unknown speaker; known are {known}")
    return {"role": _ROLES[speaker], "content": value or ""}


def _calls(number: int, value: str | None) -> list[dict[str, Any]]:
    try:
        parsed = json.loads(value or "")
    except ValueError:
        raise RecordProblem(f"has a {_CALL} in turn {number} that is not JSON") from None
    calls = parsed if isinstance(parsed, list) else [parsed]
    if not all(isinstance(call, dict) and "name" in call for call in calls):
        raise RecordProblem(f"has a {_CALL} in turn {number} without a name")
    return [{"type": "function", "function": call} for call in calls]


def _read_completion(record: Record, fields: Fields) -> Sample:
    return _answer(record, "prompt", "completion", fields)


def _answer(record: Record, question: str, answer: str, fields: Fields) -> Sample:
    kind = list if fields.is_chat else str
    asked, said = required(record, question, kind), required(record, answer, kind)
    if fields.is_chat:
        return Conversation([*asked, *said], fields.tools_of(record), len(asked))
    return Completion(asked, said)


def _read_instruction(record: Record, fields: Fields) -> Sample:
    asked, said = required(record, "instruction", str), required(record, "output", str)
    given = record.get("input")
    given = "" if given is None else required(record, "input", str)
    if not fields.is_chat:
        return Completion(alpaca_prompt(asked, given), said)
    question = f"{asked}\n\n{given}" if given else asked
    turns = ({"role": "user", "content": question}, {"role": "assistant", "content": said})
    return Conversation([*turns])


def alpaca_prompt(instruction: str, given: str = "") -> str:
    """The text before the output for a tokenizer without a chat template: Alpaca's layout.

    >>> print(alpaca_prompt("Add the numbers.", "2 2"), end="|")
    Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.
    <BLANKLINE>
    ### Instruction:
    Add the numbers.
    <BLANKLINE>
    ### Input:
    2 2
    <BLANKLINE>
    ### Response:
    |
    """  # noqa: E501
    paired = ", paired with an input that provides further context" if given else ""
    context = f"### Input:\n{given}\n\n" if given else ""
    return (
        f"Below is an instruction that describes a task{paired}. Write a response that "
        f"appropriately completes the request.\n\n### Instruction:\n{instruction}\n\n{context}"
        "### Response:\n"
    )


def _read_preference(record: Record, fields: Fields) -> Pair:
    if record.get("prompt"):
        answers = [_answer(record, "prompt", name, fields) for name in ("chosen", "rejected")]
        return Pair(*answers)
    kind = list if fields.is_chat else str
    chosen, rejected = (required(record, name, kind) for name in ("chosen", "rejected"))
    shared = _num_shared(chosen, rejected)
    if fields.is_chat:
        tools = fields.tools_of(record)
        return Pair(Conversation(chosen, tools, shared), Conversation(rejected, tools, shared))
    shared -= chosen[shared - 1 : shared] == " "  # it belongs to the word that follows
    return Pair(*(Completion(text[:shared], text[shared:]) for text in (chosen, rejected)))


def _num_shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items both start with; the last of each is its own."""
    most = min(len(one), len(other)) - 1
    return next((n for n in range(most) if one[n] != other[n]), max(0, most))


_WATCHED = (
    *("attention_mask", "position_ids", "document_starts", "seq_lengths", "videos"),
    *("video_grid_thw", "loss_mask", "assistant_masks", "completion_mask"),
)
"""Columns of encoded samples that show that a record cannot be packed."""


def _has_images(record: Record) -> bool:
    return bool(record.get("images"))


def _fits_vision_messages(record: Record) -> bool:
    named = (_has_conversation(record, key) for key in ("role", "from"))
    return _has_images(record) and any(named)


def _read_vision(record: Record, fields: Fields) -> VisionSample:
    from quire.formats.vision_records import read_encoded

    return read_encoded(record, fields)


def _read_vision_messages(record: Record, fields: Fields) -> VisionSample:
    from quire.formats.vision_records import read_conversation

    turns = record.get(fields.messages_column or "messages")
    read = _read_sharegpt if is_conversation(turns, "from") else _read_messages
    return read_conversation(record, read(record, fields), fields)


TEXT, MESSAGES, TOKENS_KIND = "text", "messages", "tokens"
VISION, VISION_MESSAGES = "vision", "vision_messages"
WITH_IMAGES = (VISION, VISION_MESSAGES)
"""The kinds whose records have images, which only `quire pack` reads."""
KINDS = {
    kind.name: kind
    for kind in (
        RecordKind(
            name=VISION,
            holds="encoded samples with images",
            fits=lambda record: isinstance(record.get("input_ids"), list) and _has_images(record),
            optional=("labels", "mm_token_type_ids", "image_grid_thw", *_WATCHED),
            read=_read_vision,
        ),
        RecordKind(
            name=VISION_MESSAGES,
            holds="messages with images",
            fits=_fits_vision_messages,
            optional=("system", "videos"),
            read=_read_vision_messages,
        ),
        RecordKind(name=TEXT, holds="text", fits=lambda record: _has_texts(record, "text")),
        RecordKind(
            name=TOKENS_KIND,
            holds="tokens",
            fits=lambda record: isinstance(record.get("input_ids"), list),
        ),
        RecordKind(
            name=MESSAGES,
            holds="messages with role and content",
            fits=lambda record: _has_conversation(record, "role"),
            read=_read_messages,
        ),
        RecordKind(
            name="sharegpt",
            holds="ShareGPT conversations",
            fits=lambda record: _has_conversation(record, "from"),
            optional=("system",),
            read=_read_sharegpt,
        ),
        RecordKind(
            name="preference",
            holds="preference pairs",
            fits=_fits_preference,
            columns=("chosen", "rejected"),
            optional=("prompt",),
            read=_read_preference,
        ),
        RecordKind(
            name="prompt_completion",
            holds="prompts and completions",
            fits=lambda record: _has_answers(record, "prompt", "completion"),
            columns=("prompt", "completion"),
            read=_read_completion,
        ),
        RecordKind(
            name="instruction",
            holds="instructions and outputs",
            fits=lambda record: _has_texts(record, "instruction", "output"),
            columns=("instruction", "output"),
            optional=("input",),
            read=_read_instruction,
        ),
    )
}
"""By name; a record that fits several is the first of them."""
CONVERSATIONS = (MESSAGES, "sharegpt", VISION_MESSAGES)
"""The kinds whose records are conversations under ``messages_column``."""


def kinds_of(record: Record) -> list[str]:
    """The kinds that a record fits, the likeliest first.

    >>> kinds_of({"instruction": "Add.", "output": "4", "text": "Add. 4"})
    ['text', 'instruction']
    """
    return [name for name, kind in KINDS.items() if kind.fits(record)]


def likely_column(record: Record) -> str:
    """The column that holds the messages or the longest text of a record, as ``option=name``.

    >>> likely_column({"id": "7", "body": "A page."}), likely_column({"id": 7})
    ('text_column=body', '')

    Without a name if several texts are as long, as those of a table's example are:

    >>> likely_column({"id": "text", "body": "text"})
    'text_column='
    """
    for name, value in record.items():
        if is_conversation(value, "role") or is_conversation(value, "from"):
            return f"messages_column={name}"
    texts = {name: len(value) for name, value in record.items() if isinstance(value, str)}
    longest = [name for name, size in texts.items() if size == max(texts.values())]
    return f"text_column={longest[0] if len(longest) == 1 else ''}" if texts else ""


def remedy(fits: str) -> str:
    """The option to use for records of another kind, or with another column.

    >>> remedy("sharegpt")
    "it holds ShareGPT conversations: use record_kind='sharegpt'"
    >>> remedy("text_column=body")
    "if 'body' is what to pack, use text_column='body'"
    """
    if fits in KINDS:
        return f"it holds {KINDS[fits].holds}: use {setting('record_kind', fits)}"
    name, _, column = fits.partition("=")
    if not column:
        return f"name the column to pack with {option(name)}"
    return f"if {column!r} is what to pack, use {setting(name, column)}"


def example_of(schema: pa.Schema) -> Record:
    """A record with the columns of a table; their types show its kind."""
    return {field.name: _example(field.type) for field in schema}


def _example(kind: pa.DataType) -> object:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_text(kind):
        return "text"
    if pa.types.is_struct(kind):
        return {field.name: _example(field.type) for field in kind}
    if is_number_list(kind):
        return [0]
    return [_example(kind.value_type)] if is_list(kind) else None


def num_characters(value: object) -> int:
    """About how much text a JSON value or a sample holds.

    >>> num_characters(Conversation([{"role": "user", "content": "Hi?"}]))
    7
    """
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(num_characters, value.values()))
    return sum(map(num_characters, value)) if isinstance(value, list | tuple) else 0


def is_chat_record(kind: str, record: Record) -> bool:
    """Whether a record of this kind holds messages rather than text."""
    name = {"prompt_completion": "completion", "preference": "chosen"}.get(kind)
    return kind in CONVERSATIONS or (name is not None and isinstance(record.get(name), list))
