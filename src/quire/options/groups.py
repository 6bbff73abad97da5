"""Option groups that paths share, and how keywords become one.

Each option is declared once, with the text that ``--help`` shows, and appears in every function and
command that takes its group. To add an option, add a field with a docstring here and read it where
it acts.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

from quire.errors import InvalidOption, unknown_name
from quire.options.names import option, setting
from quire.options.rules import (
    ChatDate,
    Length,
    Pattern,
    Positive,
    PositiveLength,
    Seed,
    validate,
)

TokenizerEngine: TypeAlias = Literal["auto", "fast", "tokenizers", "transformers"]
Overlong: TypeAlias = Literal["split", "truncate", "truncate_left", "drop", "error", "fill"]
RecordKindName: TypeAlias = Literal[
    "text",
    "messages",
    "sharegpt",
    "prompt_completion",
    "instruction",
    "preference",
    "tokens",
    "vision",
    "vision_messages",
]
"""What a record may hold; `quire.formats.record_kinds` reads them."""
MESSAGES_IN = {
    "messages": "messages",
    "sharegpt": "conversations",
    "vision_messages": "messages",
}
"""The column of conversations, by the kind of records."""
TOOLS = "tools"
"""The column that holds the tools of conversations, as in transformers and TRL."""
TOKENS = "input_ids"
"""The column of the tokens."""
TEXT_ONLY = ("truncate_at", "truncate_to")
"""Options of text that conversations, completions and tokens do not have."""

P = ParamSpec("P")
Result = TypeVar("Result")


class Options:
    """The base of option groups; values are checked against their annotations on creation."""

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """What a text is."""

    text_column: str = "text"
    """The column that holds the text."""


@dataclass(frozen=True, kw_only=True)
class RecordOptions(TextOptions):
    """What a record holds: the part of `SourceOptions` that streams have too."""

    record_kind: RecordKindName | None = None
    """What a record holds: text, messages, sharegpt (conversations of from and value),
    prompt_completion, instruction (with input and output), preference (chosen and rejected),
    tokens, vision (tokens and images) or vision_messages. None: recognized from the first
    records."""
    messages_column: str | None = None
    """The column that holds a conversation, for the tokenizer's chat template. None: messages, or
    conversations for ShareGPT."""
    tools_column: str | None = TOOLS
    """The column that holds the tools of a conversation; '' or None leaves them out."""
    assistant_only: bool = True
    """Train only on what the assistant says, on the completion or on the output."""
    chat_date: ChatDate | None = None
    """The date, such as 2026-11-18, for chat templates that ask for one. None: the day of the
    first run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "record_kind", self._named_kind())
        kind = self.record_kind
        if kind in MESSAGES_IN and self.messages_column is None:
            object.__setattr__(self, "messages_column", MESSAGES_IN[kind])
        if kind in ("text", "tokens"):
            self.require_unset(
                f"conversations ({option('messages_column')})", "chat_date", "tools_column"
            )

    def _named_kind(self) -> RecordKindName | None:
        """The kind that the options name or imply; None: it is to be recognized."""
        kind = self.record_kind
        if self.messages_column is not None and kind not in (None, *MESSAGES_IN):
            raise InvalidOption(
                f"{setting('record_kind', kind)} has no {option('messages_column')}; leave out one "
                "of the two"
            )
        names_text = self.text_column != TextOptions.text_column and self.messages_column is None
        return "text" if kind is None and names_text else kind

    @functools.cached_property
    def has_answers(self) -> bool:
        """Whether records hold questions and answers, so that documents have labels."""
        return self.messages_column is not None or self.record_kind not in (None, "text", "tokens")

    def require_unset(self, kind: str, *names: str) -> None:
        """Raise if one of these options, which are only for one kind of input, was given."""
        for name in names:
            value, default = getattr(self, name), type(self).__dataclass_fields__[name].default
            if value is not None and value != default:
                raise InvalidOption(
                    f"{setting(name, value)} is only for {kind}; leave {option(name)} out"
                )


@dataclass(frozen=True, kw_only=True)
class SourceOptions(RecordOptions):
    """What a document is: a text, a conversation, or tokens."""

    pretokenized: bool = False
    """Records hold tokens, which are used as they are. Assumed if there is no tokenizer."""
    tokens_column: str = TOKENS
    """The column that holds the tokens."""
    columns: tuple[str, ...] | None = None
    """Columns with a value per token, packed together with the tokens. None: all of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.record_kind == "tokens":
            object.__setattr__(self, "pretokenized", True)

    def _named_kind(self) -> RecordKindName | None:
        kind = self.record_kind
        if self.messages_column is not None and self.pretokenized:
            raise InvalidOption(
                f"a record holds tokens or messages; leave out {option('pretokenized')} or "
                f"{option('messages_column')}"
            )
        if self.pretokenized and kind not in (None, "tokens"):
            raise InvalidOption(
                f"{setting('record_kind', kind)} is not tokens; leave out {option('pretokenized')} "
                f"or {option('record_kind')}"
            )
        return "tokens" if self.pretokenized else RecordOptions._named_kind(self)


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(Options):
    """How texts become documents of tokens."""

    add_bos: bool | None = None
    """Start every fragment (in streams every document) with BOS, if the tokenizer has one. None: if
    the tokenizer does so."""
    add_eos: bool = True
    """End every document with EOS, if the tokenizer has one (streams need one)."""
    drop_longer_than: Positive | None = None
    """Drop documents with more tokens (BOS counts, EOS does not)."""
    truncate_to: Positive | None = None
    """Cut documents to this many tokens, before BOS and EOS are added and before splitting."""
    truncate_at: Pattern | None = None
    """Cut texts before the first match of this regular expression."""
    tokenizer_engine: TokenizerEngine = "auto"
    """The library that tokenizes text; all give the same ids. ``auto``: fast (fastokens) if the
    tokenizer is of a kind that it supports and there is enough text, otherwise tokenizers."""


@dataclass(frozen=True, kw_only=True)
class RowOptions(Options):
    """What fits into a row: the part of `PackOptions` that streams have too."""

    max_length: Positive
    """The most tokens in a row."""
    max_documents_per_row: PositiveLength | None = None
    """The most fragments in a row. None: no limit."""


@dataclass(frozen=True, kw_only=True)
class PackOptions(RowOptions):
    """How documents become rows."""

    strategy: str = "exact_fit"
    """The packing strategy: exact_fit, best_fit, first_fit, greedy, wrapped, tight, or a registered
    one."""
    overlong: Overlong = "split"
    """What happens to a document that is longer than a row; ``fill`` also cuts to close gaps."""
    stride: Length = 0
    """Tokens of a document repeated at the start of each continuation."""
    min_length: PositiveLength = 1
    """Drop rows with fewer tokens."""
    min_fragment: PositiveLength = 1
    """The shortest piece that overlong=fill may cut."""
    align: PositiveLength = 1
    """Round up the space of every fragment to a multiple of this; rows stay dense."""
    shuffle: bool | None = None
    """Shuffle rows. None: unless the strategy keeps the order of documents."""
    seed: Seed | None = 0
    """Seeds the shuffle. None: new entropy each time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_length > self.max_length:
            raise InvalidOption(
                f"{setting('min_length', self.min_length)} would drop every row because a row "
                f"holds at most {self.max_length} tokens; lower {option('min_length')} or raise "
                f"{option('max_length')}"
            )
        if self.align > self.max_length:
            raise InvalidOption(
                f"{setting('align', self.align)} is more than the {self.max_length} tokens of a "
                f"row; lower {option('align')} or raise {option('max_length')}"
            )


def group_values(options: object, group: type) -> dict[str, Any]:
    """The values of those options that belong to a group."""
    return {field.name: getattr(options, field.name) for field in fields(group)}


def known_options(kind: Callable[..., object], named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of options by name; an unknown or missing name is an error.

    >>> PackOptions(**known_options(PackOptions, {"strategy": "greedy"}))
    Traceback (most recent call last):
    quire.errors.InvalidOption: max_length is missing; it has no default
    """
    known = _parameters(kind)
    require_known(named, known)
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in named:
            raise InvalidOption(f"{option(name)} is missing; it has no default")
    return named


@functools.cache
def _parameters(kind: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(kind).parameters


def require_known(named: Iterable[str], known: Collection[str]) -> None:
    """Raise for a name that is not known; the error suggests the nearest one."""
    for name in named:
        if name not in known:
            raise unknown_name("option", name, known)


def suggest_keywords(function: Callable[P, Result]) -> Callable[P, Result]:
    """The function, with an error for unknown keywords that suggests the nearest known one.

    >>> suggest_keywords(lambda *, max_length: max_length)(max_lenght=8)
    Traceback (most recent call last):
    quire.errors.InvalidOption: unknown option 'max_lenght'; did you mean 'max_length'?
    known: max_length
    """
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> Result:
        require_known(named, known)
        return function(*args, **named)

    return checked


def takes_options(
    kind: Callable[P, object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[Any, P], Result]]:
    """Declare that a function takes the options of a class after its first argument.

    Type checkers, editors and `help` know the options, their types and defaults from the class.

    >>> @takes_options(PackOptions)
    ... def rows(lengths, **named):
    ...     options = PackOptions(**known_options(PackOptions, named))
    ...     return options.max_length, options.strategy
    >>> rows([3, 5], max_length=8)
    (8, 'exact_fit')
    """
    own = inspect.signature(kind).parameters.values()

    def decorate(function: Callable[..., Result]) -> Callable[Concatenate[Any, P], Result]:
        first = next(iter(inspect.signature(function).parameters.values()))
        function.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
        return function

    return decorate
