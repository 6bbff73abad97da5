"""Fingerprints of tokenizers, for manifests and for states of streams.

A tokenizer is recognized by what it does to a few texts and by its files, never by its path.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from quire.text.byte_tokenizer import ByteTokenizer
from quire.text.fast_tokenizer import FastTokenizer
from quire.text.hub import local_tokenizer
from quire.text.tokenizer import Tokenizer, TokenizerLike, as_tokenizer

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
# Manifests and states of 0.1.0 hold digests of these texts: another text would make them foreign.
_MANIFEST_TEXTS = (
    "Hello, world!",
    "  two  spaces\t\ttabs\r\n\nlines",
    "naïve Straße Ελληνικά русский עברית العربية हिन्दी ไทย 中文 日本語 한국어 🙂👩‍👩‍👧",
    "def f(x: int) -> int:\n    return x ** 2 + 3.14159e-10  # 1234567890",
    "<s></s><|endoftext|><|im_start|>user\n<|im_end|>[PAD][UNK]",
)
_STATE_TEXTS = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "naïve façade — Ελληνικά, русский, 日本語, العربية, 🙂",
    "\n\n\tdef f(x):\n        return x ** 2\r\n",
    "<|endoftext|><s></s><|im_start|>",
)


def tokenizer_fingerprint(
    named: TokenizerLike | None, loaded: TokenizerLike | None
) -> dict[str, object] | None:
    """For manifests: hashes of the tokenizer's files, and of the tokens that it makes of texts."""
    if loaded is None:
        return None
    # Not by the fast engine, which is tried on the first documents that it encodes.
    reference = loaded.reference if isinstance(loaded, FastTokenizer) else loaded
    tokenizer = as_tokenizer(reference)
    encoded = tokenizer.encode_batch(_MANIFEST_TEXTS)
    content = {
        "tokens": encoded.tokens.tolist(),
        "lengths": encoded.lengths.tolist(),
        "specials": [tokenizer.bos_token_id, tokenizer.eos_token_id],
        "vocab_size": tokenizer.vocab_size,
        "chat_template": str(getattr(loaded, "chat_template", None)),
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    kind = "byte" if isinstance(loaded, ByteTokenizer) else "subword"
    return {"kind": kind, "files": _hashes_of_files(named), "probes": digest}


def tokenizer_digest(tokenizer: Tokenizer, named: str | None = None) -> str:
    """For states: 32 digits of the tokens that it makes of texts, and of its ``tokenizer.json``."""
    digest = hashlib.sha256()
    encoded = tokenizer.encode_batch(_STATE_TEXTS)
    digest.update(encoded.tokens.astype("<i4").tobytes() + encoded.lengths.astype("<i8").tobytes())
    specials = [tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id]
    digest.update(repr((tokenizer.vocab_size, specials)).encode())
    if named:
        path = Path(local_tokenizer(named))
        file = path if path.is_file() else path / "tokenizer.json"
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()[:32]


def _hashes_of_files(named: TokenizerLike | None) -> dict[str, str]:
    if named == "byte" or not isinstance(named, str | os.PathLike):
        return {}
    path = Path(local_tokenizer(named))
    files = [path / name for name in _FILES] if path.is_dir() else [path]
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()
    }
