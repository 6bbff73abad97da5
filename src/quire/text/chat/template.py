"""A tokenizer's chat template, with the tools of one conversation."""

from __future__ import annotations

import datetime
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from quire.errors import CorruptFile, InvalidDocument, InvalidOption, missing_dependency
from quire.text.chat.date import ASKS_FOR_DATE, FIXED_NOW, directives
from quire.text.hub import local_tokenizer
from quire.text.tokenizer import TokenizerLike

Messages: TypeAlias = Sequence[Mapping[str, Any]]


class ChatTokenizer(Protocol):
    """The parts of a transformers tokenizer that are used."""

    eos_token: str | None
    is_fast: bool
    get_chat_template: Callable[..., str]
    apply_chat_template: Callable[..., Any]
    get_added_vocab: Callable[[], dict[str, int]]
    special_tokens_map: Mapping[str, Any]
    __call__: Callable[..., Any]


def as_chat_tokenizer(named: TokenizerLike) -> ChatTokenizer:
    """The transformers tokenizer in a folder, or the object itself."""
    if not isinstance(named, str | os.PathLike):
        return cast(ChatTokenizer, named)
    path = Path(local_tokenizer(named))  # checked first: transformers takes seconds to import
    if not path.is_dir():
        raise InvalidOption(f"messages need a tokenizer folder with a chat template, not {path}")
    try:
        from transformers import AutoTokenizer

        from quire.text.tokenizer_file import read_config
    except ModuleNotFoundError:
        raise missing_dependency("transformers", "messages", "hf") from None
    read_config(path / "tokenizer_config.json")
    try:
        found = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, TypeError, KeyError) as error:
        first = str(error).partition("\n")[0]
        raise CorruptFile(f"{path} cannot be loaded as a tokenizer: {first}") from error
    return cast(ChatTokenizer, found)


def has_chat_template(named: TokenizerLike | None) -> bool:
    """Whether a tokenizer has a chat template; that of a folder is not loaded for this."""
    if not isinstance(named, str | os.PathLike):
        return bool(getattr(named, "chat_template", None))
    folder = Path(local_tokenizer(named))
    if not folder.is_dir():
        return False
    if any((folder / name).exists() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    from quire.text.tokenizer_file import read_config

    return bool(read_config(folder / "tokenizer_config.json").get("chat_template"))


def asks_for_date(tokenizer: object) -> bool:
    """Whether any chat template of the tokenizer writes the date."""
    return ASKS_FOR_DATE in str(getattr(tokenizer, "chat_template", None))


@dataclass(frozen=True)
class ChatTemplate:
    """Renders messages as text."""

    tokenizer: ChatTokenizer
    date: datetime.date
    """The date that the template gets if it asks for one."""
    tools: Sequence[Any] | None = None

    def with_tools(self, tools: object) -> ChatTemplate:
        """The template with a record's tools: a list, a list as JSON, or nothing."""
        listed = _as_list(tools)
        if listed is None:
            return self
        template = replace(self, tools=listed)
        if template.tools and not re.search(r"\btools\b", template.source):
            raise InvalidDocument(
                "has tools, which the chat template does not render; give the tokenizer a template "
                "that does, or leave them out: tools_column=None, or --tools-column ''"
            )
        return template

    @property
    def source(self) -> str:
        """The template itself; a tokenizer may have another one for conversations with tools."""
        try:
            return self.tokenizer.get_chat_template(**self._tools)
        except (AttributeError, ValueError) as error:
            raise InvalidOption(
                f"{type(self.tokenizer).__name__} has no chat template; pass a transformers "
                "tokenizer that has one, or set its chat_template"
            ) from error

    @property
    def marks_the_assistant(self) -> bool:
        """Whether it has generation blocks."""
        return _has_generation_block(self.source)

    def render(self, messages: Messages, *, add_generation_prompt: bool = False) -> str:
        """The text."""
        source = self.source
        dated = {"chat_template": FIXED_NOW + source} if ASKS_FOR_DATE in source else {}
        with _errors_of_rendering():
            text: str = self.tokenizer.apply_chat_template(
                list(messages),
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                **dated,
                **self._given,
            )
        return text

    def render_marked(self, messages: Messages) -> tuple[str, list[tuple[int, int]]]:
        """The text, and (start, stop) of the generation blocks in it."""
        from transformers.utils.chat_template_utils import render_jinja_template

        with _errors_of_rendering():
            (text,), (blocks,) = cast(Any, render_jinja_template)(  # whose annotation is wrong
                [list(messages)],
                chat_template=(FIXED_NOW if ASKS_FOR_DATE in self.source else "") + self.source,
                return_assistant_tokens_mask=True,
                **self.tokenizer.special_tokens_map,
                **self._given,
            )
        return text, blocks

    @property
    def _given(self) -> dict[str, Any]:
        """What the template sees in addition to the messages."""
        dated = {"quire_date": directives(self.date)} if ASKS_FOR_DATE in self.source else {}
        return {**self._tools, **dated}

    @property
    def _tools(self) -> dict[str, Any]:
        return {"tools": self.tools} if self.tools else {}  # some write a heading for an empty list


@lru_cache(maxsize=64)
def _has_generation_block(source: str) -> bool:
    return re.search(r"\{%-?\s*generation\s*-?%\}", source) is not None


@contextmanager
def _errors_of_rendering() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # jinja2's errors, and those of a template's own filters
        raise InvalidDocument(f"is rejected by the chat template: {error}") from error


def _as_list(tools: object) -> Sequence[Any] | None:
    if isinstance(tools, str) and tools:
        try:
            tools = json.loads(tools)
        except ValueError as error:
            raise InvalidDocument(f"has tools that are not JSON: {error}") from error
    if not isinstance(tools, Sequence | None) or (isinstance(tools, str) and tools):
        raise InvalidDocument(f"has {type(tools).__name__} where a list of tools is needed")
    return tools or None
