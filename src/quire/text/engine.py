"""Which library turns text into ids: `open_tokenizer`. All give the ids of `tokenizers`."""

from __future__ import annotations

import os
from typing import Any, cast

from quire.errors import InvalidOption
from quire.options import TokenizerEngine
from quire.options.names import option
from quire.text.chat.template import ChatTokenizer, as_chat_tokenizer
from quire.text.fast_tokenizer import (
    ENOUGH,
    BackedTokenizer,
    FastTokenizer,
    engine_version,
    is_failure,
    reference_version,
)
from quire.text.tokenizer import CalledTokenizer, Tokenizer, TokenizerLike, as_tokenizer


def open_tokenizer(
    named: TokenizerLike, engine: TokenizerEngine = "auto", num_bytes: int | None = None
) -> Tokenizer:
    """The named tokenizer, encoding with this engine.

    ``num_bytes`` is the size of the texts, if it is known: ``auto`` does not load the fast engine
    for little text. If it is not known, the fast engine is loaded once enough text was encoded.

    >>> open_tokenizer("byte").vocab_size
    259
    """
    if engine == "transformers":
        return _called(named)
    tokenizer = as_tokenizer(named)
    if isinstance(tokenizer, FastTokenizer):
        return tokenizer.reference if engine == "tokenizers" else tokenizer
    if not _is_backed(tokenizer):
        if engine == "auto":
            return tokenizer
        raise InvalidOption(
            f"{option('tokenizer_engine')} is {engine!r} but {type(tokenizer).__name__} has no "
            f"backend of the tokenizers package; leave {option('tokenizer_engine')} out"
        )
    is_little = num_bytes is not None and num_bytes < ENOUGH
    if engine == "tokenizers" or (engine == "auto" and is_little):
        return tokenizer
    fast = _remembered(named, cast(BackedTokenizer, tokenizer), required=engine == "fast")
    if engine == "fast" or num_bytes is not None:
        fast.load()
    return fast


def open_chat_engine(
    tokenizer: ChatTokenizer, engine: TokenizerEngine = "auto", num_bytes: int | None = None
) -> Tokenizer:
    """What encodes the texts that a tokenizer's chat template renders."""
    return open_tokenizer(CalledTokenizer(tokenizer), engine, num_bytes)


def _is_backed(tokenizer: object) -> bool:
    """Whether it is quire's own and encodes with `tokenizers`; a caller's class may do more."""
    if getattr(tokenizer, "backend", None) is None:
        return False
    from quire.text.tokenizer_file import FileTokenizer

    return isinstance(tokenizer, CalledTokenizer | FileTokenizer)


def _called(named: TokenizerLike) -> Tokenizer:
    """The tokenizer as transformers calls it, loaded by transformers if it is a path."""
    if named == "byte":
        raise InvalidOption(
            f"{option('tokenizer_engine')} is 'transformers' but ByteTokenizer is not a tokenizer "
            f"of transformers; leave {option('tokenizer_engine')} out"
        )
    own = named.tokenizer if isinstance(named, CalledTokenizer) else named
    called = CalledTokenizer(as_chat_tokenizer(own))
    if not hasattr(called.tokenizer, "get_vocab"):
        raise InvalidOption(
            f"{option('tokenizer_engine')} is 'transformers' but "
            f"{type(called.tokenizer).__name__} is not a tokenizer of transformers; leave "
            f"{option('tokenizer_engine')} out"
        )
    return called.without_backend()


_MOST_REMEMBERED = 4
_recent: dict[tuple[object, ...], tuple[object, FastTokenizer]] = {}
"""Engines by what determines their ids; the owner of the backend keeps its own id unique."""


def _remembered(
    named: TokenizerLike, reference: BackedTokenizer, *, required: bool
) -> FastTokenizer:
    """A fast tokenizer for this reference, cached because a map function opens one per batch."""
    backend = reference.backend
    own = named.tokenizer if isinstance(named, CalledTokenizer) else named
    owner = backend if isinstance(own, str | os.PathLike) else own
    key = (
        id(owner),
        required,
        backend.encode_special_tokens,
        repr(backend.normalizer),
        repr(backend.pre_tokenizer),
        repr(backend.post_processor),
        repr(backend.get_added_tokens_decoder()),
        _model_key(backend),
    )
    found = _recent.get(key)
    if found is None:  # each step is safe while other threads do the same
        for oldest in list(_recent)[: max(0, len(_recent) - _MOST_REMEMBERED + 1)]:
            _recent.pop(oldest, None)
        found = _recent.setdefault(key, (owner, FastTokenizer(reference, required=required)))
    return found[1]


_MODEL_OPTIONS = (
    "dropout",
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)
_PROBE = (
    "The quick brown fox doesn't jump over 13 lazy dogs.\n\tna\u00efve \u4e2d\u6587 return x_1;"
)


def _model_key(backend: Any) -> tuple[object, ...]:  # noqa: ANN401
    """Tells a model that its owner changed or replaced, in much less time than reading it all."""
    model, size = backend.model, backend.get_vocab_size(with_added_tokens=False)
    options = tuple(getattr(model, name, None) for name in _MODEL_OPTIONS)
    some = tuple(model.id_to_token(number) for number in range(0, size, size // 64 + 1))
    is_random = options[0]
    return *options, size, some, () if is_random else tuple(_probe_ids(backend))


def _probe_ids(backend: Any) -> list[int]:  # noqa: ANN401
    try:
        return list(backend.encode(_PROBE, add_special_tokens=False).ids)
    except BaseException as error:
        if not is_failure(error):
            raise
        return []  # it is reported when the texts are encoded


def engine_record(tokenizer: object) -> dict[str, object] | None:
    """What manifests and states record: which engine encodes, and what it was compared with.

    None for tokenizers that have no choice of engines.
    """
    is_fast = isinstance(tokenizer, FastTokenizer) and tokenizer.is_fast
    if not isinstance(tokenizer, FastTokenizer) and not _is_backed(tokenizer):
        return None
    reference: dict[str, object] = {"name": "tokenizers", "version": reference_version()}
    if not is_fast:
        return reference
    return {"name": "fastokens", "version": engine_version(), "compared_with": reference}
