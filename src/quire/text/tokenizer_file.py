"""A ``tokenizer.json``, read with only the `tokenizers` package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from quire.errors import CorruptFile, InvalidOption
from quire.text.encoded import Encoded


@dataclass(frozen=True, kw_only=True)
class FileTokenizer:
    """A tokenizer of the `tokenizers` package with the special ids that its folder names."""

    backend: tokenizers.Tokenizer
    """Not shared with other owners, and without truncation and padding, so it is thread-safe."""
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    @cached_property  # isinstance() with a protocol reads it too; 0.2 s with Qwen3
    def vocab_size(self) -> int:
        """All ids, added tokens included."""
        # Not the number of tokens: some vocabularies have gaps.
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def adds_bos(self) -> bool:
        """Whether its own post-processor starts a text with BOS."""
        return self.backend.encode("a", add_special_tokens=True).ids[:1] == [self.bos_token_id]

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """The tokens of all texts, in parallel, with no special token added."""
        return encode_with_backend(self.backend, texts)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of one text, and (start, stop) of each in its characters."""
        encoding = self.backend.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens, special ones included."""
        return str(self.backend.decode(list(tokens), skip_special_tokens=False))


def encode_with_backend(backend: tokenizers.Tokenizer, texts: Sequence[str]) -> Encoded:
    """Batch encoding at full speed, without offsets; the backend has no truncation or padding."""
    encode = getattr(backend, "encode_batch_fast", backend.encode_batch)
    with _typed_failures("the tokenizer cannot encode these texts"):
        return Encoded.joined(
            [_encoded(encode(part, add_special_tokens=False)) for part in _parts(texts)]
        )


_PART = 1 << 22
"""Characters encoded at once; the encodings take 17 bytes for each of them (Qwen3)."""


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in lists of about `_PART` characters; at least one list."""
    part: list[str] = []
    size = 0
    for text in texts:
        if part and size + len(text) > _PART:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
    yield part


def _encoded(encodings: list[tokenizers.Encoding]) -> Encoded:
    lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
    tokens = chain.from_iterable(encoding.ids for encoding in encodings)
    # With a count, numpy reads every id once; from a list it would read them twice.
    flat = np.fromiter(tokens, dtype=np.int32, count=int(lengths.sum()))
    return Encoded(tokens=flat, lengths=lengths, from_vocabulary=True)


def private_backend(
    backend: Any,  # noqa: ANN401
    *,
    split_special_tokens: bool | None = None,
) -> tokenizers.Tokenizer:
    """A copy of a backend, without its truncation and padding.

    ``split_special_tokens``: whether special tokens in a text are plain text; None: as in the
    original.

    Both share the vocabulary, which is large; the original is never modified, so its owner may use
    it in other threads meanwhile. Later changes to it (added tokens, a new normalizer) do not
    affect the copy. Takes 0.2 ms with Qwen3, where parsing takes 0.8 s.
    """
    # Classes such as ByteLevelBPETokenizer wrap the backend.
    given: tokenizers.Tokenizer = getattr(backend, "_tokenizer", backend)
    added = given.get_added_tokens_decoder()
    copy = tokenizers.Tokenizer(given.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if getattr(given, part) is not None:
            setattr(copy, part, getattr(given, part))
    copy.add_tokens([added[token] for token in sorted(added)])
    if repr(copy.get_added_tokens_decoder()) != repr(added):  # adding them gave other ids
        copy = _without_limits(tokenizers.Tokenizer.from_str(given.to_str()))
    split = given.encode_special_tokens if split_special_tokens is None else split_special_tokens
    copy.encode_special_tokens = split
    return copy


def _without_limits(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    backend.no_truncation()
    backend.no_padding()
    return backend


@contextmanager
def _typed_failures(problem: str) -> Iterator[None]:
    """Turn what Rust raises, a plain Exception or a panic, into a typed error."""
    try:
        yield
    except BaseException as error:
        # OverflowError: an id over 2**31 - 1.
        if type(error).__name__ not in ("Exception", "PanicException", "OverflowError"):
            raise
        raise CorruptFile(f"{problem}: {error}; fetch its tokenizer.json again") from error


def load_tokenizer_file(path: Path) -> FileTokenizer:
    """The tokenizer in a ``tokenizer.json``, or in a folder that has one."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise InvalidOption(
            f"there is no tokenizer at {path}: pass 'byte', or the path of a tokenizer.json or of "
            "a folder that has one"
        )
    return _load(file, _version(file), _version(file.with_name(_CONFIG)))


_CONFIG = "tokenizer_config.json"


def _version(file: Path) -> tuple[int, int] | None:
    if not file.is_file():
        return None
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=4)
def _load(file: Path, *_versions: tuple[int, int] | None) -> FileTokenizer:
    # A map function calls this once per batch, and reading Qwen3's file takes half a second.
    with _typed_failures(f"{file} is not a tokenizer"):
        backend = _without_limits(tokenizers.Tokenizer.from_file(str(file)))
    config = read_config(file.with_name(_CONFIG))
    ids = {f"{name}_id": _token_id(backend, config.get(name), file, name) for name in _SPECIALS}
    return FileTokenizer(backend=backend, **ids)


_SPECIALS = ("pad_token", "bos_token", "eos_token")


def read_config(file: Path) -> dict[str, Any]:
    """A tokenizer's config, empty if there is no file; a config that needs code is an error."""
    if not file.is_file():
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CorruptFile(f"{file} holds {type(config).__name__}, not an object")
    if "auto_map" in config:
        raise InvalidOption(
            f"{file} requires custom code (auto_map), which quire does not run; load the "
            "tokenizer yourself with transformers and pass the object"
        )
    return config


def _token_id(backend: tokenizers.Tokenizer, token: object, file: Path, name: str) -> int | None:
    text = token.get("content") if isinstance(token, dict) else token
    if text is None:
        return None
    try:
        token_id: int | None = backend.token_to_id(text)  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError):  # not text, or half a surrogate pair
        token_id = None
    if token_id is None:
        raise CorruptFile(f"{name} is {text!r} but {file} has no such token")
    return token_id
