"""The tokenizer of a corpus: loaded from what was named, and known again by what it does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.corpus.options import CorpusOptions
from quire.errors import InvalidOption
from quire.storage import as_path, is_uri
from quire.text import ByteTokenizer, TokenizerLike, as_tokenizer
from quire.text.chat_date import today
from quire.text.chat_template import as_chat_tokenizer, asks_for_date
from quire.text.tokenizer import adds_bos

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
_PROBES = (
    "Hello, world!",
    "  two  spaces\t\ttabs\r\n\nlines",
    "naïve Straße Ελληνικά русский עברית العربية हिन्दी ไทย 中文 日本語 한국어 🙂👩‍👩‍👧",
    "def f(x: int) -> int:\n    return x ** 2 + 3.14159e-10  # 1234567890",
    "<s></s><|endoftext|><|im_start|>user\n<|im_end|>[PAD][UNK]",
)


def load_tokenizer(named: TokenizerLike | None, options: CorpusOptions) -> TokenizerLike | None:
    """What encodes the corpus; None where tokens are given and no tokenizer is named."""
    if named is None:
        if options.pretokenized:
            return None
        raise InvalidOption(
            "text needs a tokenizer; say 'byte' or give the path of one (records that hold tokens "
            f"under {options.tokens_key!r} need none)"
        )
    if isinstance(named, str) and is_uri(named):
        raise InvalidOption(
            f"the tokenizer {as_path(named)} stands in a store, but is read from the local disk\n"
            "fetch it, and give its path"
        )
    return as_tokenizer(named) if options.messages_key is None else as_chat_tokenizer(named)


def settled(
    options: CorpusOptions, loaded: TokenizerLike | None, recorded: Mapping[str, Any] | None = None
) -> CorpusOptions:
    """The options with what was left to the tokenizer and to the calendar filled in.

    What an unfinished or finished output has ``recorded`` among its options is kept. Else BOS is
    added if the tokenizer adds it itself, and never to tokens that are given or rendered; the date
    is today's, and stays open where no template asks for it.
    """
    if options.add_bos is None and isinstance((recorded or {}).get("add_bos"), bool):
        options = replace(options, add_bos=(recorded or {})["add_bos"])
    elif options.add_bos is None:
        is_text = loaded is not None and not options.pretokenized and not options.messages_key
        options = replace(options, add_bos=is_text and adds_bos(as_tokenizer(loaded)))
    if options.messages_key is None or options.chat_date or not asks_for_date(loaded):
        return options
    return replace(options, chat_date=(recorded or {}).get("chat_date") or today())


def tokenizer_fingerprint(named: TokenizerLike | None, loaded: TokenizerLike | None) -> object:
    """What the manifest says of the tokenizer: a hash of its files, and of what it makes of probes.

    Its path is no part of it.
    """
    if loaded is None:
        return None
    tokenizer = as_tokenizer(loaded)
    encoded = tokenizer.encode_batch(_PROBES)
    said = {
        "tokens": encoded.tokens.tolist(),
        "lengths": encoded.lengths.tolist(),
        "specials": [tokenizer.bos_token_id, tokenizer.eos_token_id],
        "vocab_size": tokenizer.vocab_size,
        "chat_template": str(getattr(loaded, "chat_template", None)),
    }
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    kind = "byte" if isinstance(loaded, ByteTokenizer) else "subword"
    return {"kind": kind, "files": _hash_of_files(named), "probes": digest}


def chat_template_of(loaded: TokenizerLike | None) -> dict[str, object]:
    """What the manifest says of the template that rendered conversations; nothing without one."""
    template = getattr(loaded, "chat_template", None)
    return {} if template is None else {"chat_template": template}


def _hash_of_files(named: TokenizerLike | None) -> dict[str, str]:
    if named == "byte" or not isinstance(named, str | os.PathLike):
        return {}
    path = Path(named)
    files = [path / name for name in _FILES] if path.is_dir() else [path]
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()
    }
