"""The tokenizer of a stream, and the config that follows from it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from quire.errors import InvalidOption, missing_dependency
from quire.stream.encode import Terms
from quire.stream.options import ModelOptions, StreamConfig, TokenizerOptions
from quire.text import ByteTokenizer, Tokenizer, TokenizerLike, as_tokenizer
from quire.text.tokenizer import adds_bos

_PROBES = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "naïve façade — Ελληνικά, русский, 日本語, العربية, 🙂",
    "\n\n\tdef f(x):\n        return x ** 2\r\n",
    "<|endoftext|><s></s><|im_start|>",
)


def open_tokenizer(config: StreamConfig, given: TokenizerLike | None = None) -> Tokenizer:
    """The tokenizer that was given, or the one that the config names."""
    options, model = config.data.tokenizer, config.model
    if given is not None:
        return as_tokenizer(given)
    if options.kind == "byte":
        ids = {name: getattr(model, name) for name in _SPECIALS if getattr(model, name) is not None}
        return ByteTokenizer(byte_offset=options.byte_offset, **ids)
    name = options.hf_name_or_path
    if name is None:
        raise InvalidOption(
            "data.tokenizer.hf_name_or_path is null but kind hf needs a name or a path; or set "
            "data.tokenizer.kind to byte"
        )
    path = Path(name)
    if path.is_file() or (path / "tokenizer.json").is_file():
        return as_tokenizer(path)
    return as_tokenizer(_from_transformers(name))


def resolved(config: StreamConfig, tokenizer: Tokenizer) -> StreamConfig:
    """The config with the vocabulary's size and special ids filled in."""
    options = config.data.tokenizer
    if options.add_bos is None:
        options = replace(options, add_bos=adds_bos(tokenizer))
        config = replace(config, data=replace(config.data, tokenizer=options))
    model = _with_specials(config.model, tokenizer, options)
    own = tokenizer.vocab_size
    size = model.vocab_size
    if options.kind == "hf":
        size = -(-max(size or 1, own or 1) // options.vocab_size_multiple)
        size *= options.vocab_size_multiple
    elif own is not None and size is not None and size < own:
        raise InvalidOption(
            f"model.vocab_size is {size} but the byte tokenizer has {own} ids (256 bytes from "
            f"data.tokenizer.byte_offset {options.byte_offset} on); raise it"
        )
    model = replace(model, vocab_size=size or own)
    for name in _SPECIALS:
        token, limit = getattr(model, name), model.vocab_size
        if token is not None and limit is not None and token >= limit:
            raise InvalidOption(f"model.{name} is {token} but the vocabulary has {limit} ids")
    return replace(config, model=model)


def terms_of(config: StreamConfig, tokenizer: Tokenizer) -> Terms:
    """What is done to the tokens of every text; the config is resolved."""
    options, model = config.data.tokenizer, config.model
    for name in ("bos", "eos"):
        if getattr(options, f"add_{name}") and getattr(model, f"{name}_token_id") is None:
            raise _missing_special(name, getattr(tokenizer, f"{name}_token_id"))
    return Terms(
        bos=model.bos_token_id if options.add_bos else None,
        eos=model.eos_token_id if options.add_eos else None,
        max_doc_tokens=options.max_doc_tokens,
    )


def _missing_special(name: str, own: int | None) -> InvalidOption:
    add, model = f"data.tokenizer.add_{name}", f"model.{name}_token_id"
    if own is None:
        return InvalidOption(
            f"{add} is true but the tokenizer has no {name.upper()}; set {model}, or {add} to false"
        )
    return InvalidOption(
        f"{add} is true and {model} is not set, and data.tokenizer.auto_set_special_tokens is "
        f"false, so the tokenizer's own {name.upper()} ({own}) is not used; set {model} to {own}, "
        f"auto_set_special_tokens to true, or {add} to false"
    )


def tokenizer_fingerprint(tokenizer: Tokenizer, options: TokenizerOptions) -> str:
    """A digest of what the tokenizer does to some texts, and of its file where it has one."""
    digest = hashlib.sha256()
    probes = tokenizer.encode_batch(_PROBES)
    digest.update(probes.tokens.astype("<i4").tobytes() + probes.lengths.astype("<i8").tobytes())
    specials = [getattr(tokenizer, name) for name in _SPECIALS]
    digest.update(repr((tokenizer.vocab_size, specials)).encode())
    path = Path(options.hf_name_or_path or "")
    file = path if path.is_file() else path / "tokenizer.json"
    if options.kind == "hf" and options.hf_name_or_path and file.is_file():
        digest.update(file.read_bytes())
    return digest.hexdigest()[:32]


_SPECIALS = ("pad_token_id", "bos_token_id", "eos_token_id")


def _with_specials(
    model: ModelOptions, tokenizer: Tokenizer, options: TokenizerOptions
) -> ModelOptions:
    if options.kind == "byte" or options.auto_set_special_tokens:
        known = {name: getattr(tokenizer, name) for name in _SPECIALS}
        model = replace(model, **{name: id_ for name, id_ in known.items() if id_ is not None})
    if model.pad_token_id is None:  # padding is known from lengths, so any id will do
        model = replace(model, pad_token_id=model.eos_token_id or 0)
    return model


def _from_transformers(name: str) -> object:
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError:
        raise missing_dependency("transformers", f"the tokenizer {name!r}", "hf") from None
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise InvalidOption(
            f"data.tokenizer.hf_name_or_path is {name!r}, from which no tokenizer can be loaded: "
            f"{error}"
        ) from error
