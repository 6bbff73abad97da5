"""The protocol of tokenizers, and adapters for names, paths and objects of other libraries."""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption
from quire.text.byte_tokenizer import FILE, ByteTokenizer
from quire.text.encoded import Encoded, token_ids
from quire.text.hub import local_tokenizer


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids, with no special token added."""

    @property
    def bos_token_id(self) -> int | None: ...  # noqa: D102
    @property
    def eos_token_id(self) -> int | None: ...  # noqa: D102
    @property
    def pad_token_id(self) -> int | None: ...  # noqa: D102
    @property
    def vocab_size(self) -> int | None:
        """How many ids there are, if known."""

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """The tokens of all texts."""


TokenizerLike: TypeAlias = Tokenizer | str | os.PathLike[str] | Any
"""'byte', a path, a transformers or tokenizers object, or any callable that returns input_ids."""


def as_tokenizer(tokenizer: TokenizerLike) -> Tokenizer:
    """The tokenizer for a name, a path or an object of another library.

    An object is never modified, and a fast one is copied as it is now: tokens that its owner adds
    later, or a change of ``split_special_tokens``, take effect the next time it is passed to quire.

    >>> as_tokenizer("byte").vocab_size
    259
    """
    if isinstance(tokenizer, ByteTokenizer | CalledTokenizer):
        return tokenizer
    if tokenizer == "byte":
        return ByteTokenizer()
    if isinstance(tokenizer, str | os.PathLike):
        return _from_path(Path(local_tokenizer(tokenizer)))
    if type(tokenizer).__module__.partition(".")[0] == "tokenizers":
        from quire.text.tokenizer_file import FileTokenizer, private_backend

        return FileTokenizer(backend=private_backend(tokenizer))
    if callable(tokenizer):
        return CalledTokenizer(tokenizer)
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    raise InvalidOption(
        f"{type(tokenizer).__name__} is not a tokenizer: pass 'byte', a path, a transformers or "
        "tokenizers object, or a callable that returns input_ids and has bos_token_id and "
        "eos_token_id"
    )


def adds_bos(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer itself starts a text with BOS: Llama's does, GPT-2's and Qwen's do not.

    The byte tokenizer does. Your own can declare it with an attribute ``adds_bos``.

    >>> adds_bos(as_tokenizer("byte"))
    True
    """
    return tokenizer.bos_token_id is not None and bool(getattr(tokenizer, "adds_bos", False))


def _from_path(path: Path) -> Tokenizer:
    if (path / FILE).is_file():
        return ByteTokenizer.load(path)
    from quire.text.tokenizer_file import load_tokenizer_file

    return load_tokenizer_file(path)


@dataclass(frozen=True)
class CalledTokenizer:
    """A transformers tokenizer, or any callable that returns ``input_ids``.

    A fast tokenizer is not called directly: a call sets truncation and padding in the backend,
    which its owner may be using in another thread.
    """

    tokenizer: Any
    backend: Any = field(init=False, repr=False, compare=False)
    """The private backend that encodes; None if the callable does it."""
    _callee: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        backend, callee = _private_backend(self.tokenizer), self.tokenizer
        if backend is not None and _encodes_itself(type(self.tokenizer)):
            backend, callee = None, _with_backend(self.tokenizer, backend)
        object.__setattr__(self, "backend", backend)
        object.__setattr__(self, "_callee", callee)

    def without_backend(self) -> CalledTokenizer:
        """The same tokenizer, called as its owner would call it, also if it is a fast one."""
        called = CalledTokenizer(self.tokenizer)
        if called.backend is not None:
            callee = _with_backend(self.tokenizer, called.backend)
            object.__setattr__(called, "_callee", callee)
            object.__setattr__(called, "backend", None)
        return called

    def __reduce__(self) -> tuple[type[CalledTokenizer], tuple[Any]]:
        return CalledTokenizer, (self.tokenizer,)

    @property
    def bos_token_id(self) -> int | None:
        """The callable's own."""
        return self._special("bos_token_id")

    @property
    def eos_token_id(self) -> int | None:
        """The callable's own."""
        return self._special("eos_token_id")

    @property
    def pad_token_id(self) -> int | None:
        """The callable's own, if it has one."""
        return getattr(self.tokenizer, "pad_token_id", None)

    @property
    def adds_bos(self) -> bool:
        """Whether a call with its own special tokens starts with BOS."""
        if self.backend is not None:
            ids: list[int] = self.backend.encode("a", add_special_tokens=True).ids
        elif _accepted(self._callee, {"add_special_tokens": True}):
            ids = self._input_ids(["a"], add_special_tokens=True)[0].tolist()
        else:
            return False
        return ids[:1] == [self.bos_token_id]

    @property
    def vocab_size(self) -> int | None:
        """All ids, added tokens included; None if the callable does not tell."""
        if hasattr(self.tokenizer, "get_vocab"):  # len() is too small if ids have gaps
            return max(self.tokenizer.get_vocab().values(), default=-1) + 1
        if hasattr(self.tokenizer, "__len__"):
            return len(self.tokenizer)
        return getattr(self.tokenizer, "vocab_size", None)

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """The tokens of all texts; a fast tokenizer's own backend encodes them in parallel."""
        if self.backend is not None:
            from quire.text.tokenizer_file import encode_with_backend

            return encode_with_backend(self.backend, texts)
        if not len(texts):
            return Encoded.of_lists([])
        return Encoded.of_lists(self._input_ids(list(texts)))

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of one text, and (start, stop) of each in its characters."""
        if self.backend is not None:
            encoding = self.backend.encode(text, add_special_tokens=False)
            return encoding.ids, encoding.offsets
        encoded = self._callee(text, add_special_tokens=False, return_offsets_mapping=True)
        return encoded["input_ids"], encoded["offset_mapping"]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens."""
        return str(self.tokenizer.decode(list(tokens)))

    def _special(self, name: str) -> int | None:
        if not hasattr(self.tokenizer, name):
            raise InvalidOption(
                f"the tokenizer {type(self.tokenizer).__name__} has no {name}; set it to an id, or "
                "to None if documents are not to be marked with it"
            )
        token: int | None = getattr(self.tokenizer, name)
        return token

    def _input_ids(
        self, texts: list[str], add_special_tokens: bool = False
    ) -> list[npt.NDArray[np.int32]]:
        wanted = {"add_special_tokens": add_special_tokens, "truncation": False, "padding": False}
        result = self._callee(texts, **_accepted(self._callee, wanted))
        if not isinstance(result, Mapping) or "input_ids" not in result:
            raise InvalidOption(
                f"the tokenizer {type(self.tokenizer).__name__} returned "
                f"{type(result).__name__} without 'input_ids'"
            )
        lists = result["input_ids"]
        if len(lists) != len(texts):
            raise InvalidOption(
                f"the tokenizer returned {len(lists)} lists of input_ids for {len(texts)} texts"
            )
        return [token_ids(number, ids) for number, ids in enumerate(lists)]


def _private_backend(tokenizer: object) -> Any:  # noqa: ANN401
    """A copy of a fast tokenizer's backend, or None."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    from quire.text.tokenizer_file import private_backend

    split = bool(getattr(tokenizer, "split_special_tokens", False))
    return private_backend(backend, split_special_tokens=split)


def _with_backend(tokenizer: Any, backend: object) -> Any:  # noqa: ANN401
    """A shallow copy of a transformers tokenizer that calls this backend, not its owner's."""
    clone = copy.copy(tokenizer)
    clone._tokenizer = backend
    return clone


def _encodes_itself(kind: type) -> bool:
    """Whether a fast tokenizer's class has its own way to its backend, such as cutting words."""
    return any(
        method in vars(parent)
        for parent in kind.__mro__
        for method in ("__call__", "_encode_plus", "_batch_encode_plus")
        if not parent.__module__.startswith("transformers.tokenization_utils")
    )


def _accepted(function: Callable[..., object], keywords: dict[str, Any]) -> dict[str, Any]:
    """The keywords that the callable accepts: a plain function may accept none."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # written in C
        return {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return keywords
    names = {p.name for p in parameters}
    return {name: value for name, value in keywords.items() if name in names}
