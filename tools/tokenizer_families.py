"""Tokenizers of the families that people train with, for comparing tokenizer engines.

GPT-2's and Qwen3's files are real ones, if they are beside the project. A Llama-3 and a
SentencePiece style are trained here on given texts: same pattern, normalizer and model options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

REAL = Path(__file__).parents[2] / "shared" / "tokenizers"
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""As published with Llama 3."""


def llama3_style(texts: Iterable[str], vocab_size: int = 32_000) -> Tokenizer:
    """Byte-level BPE with Llama 3's pattern, a whole word that is a token needs no merges."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    names = ("begin_of_text", "end_of_text", "start_header_id", "end_header_id", "eot_id")
    tokenizer.add_special_tokens([f"<|{name}|>" for name in names])
    return tokenizer


def sentencepiece_style(texts: Iterable[str], vocab_size: int = 32_000) -> Tokenizer:
    """BPE with byte fallback and spaces as ▁, as Llama 2, Mistral and Gemma have it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))  # noqa: S106
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=specials,
        limit_alphabet=3000,
        max_token_length=16,
        show_progress=False,
    )
    # Without a pre-tokenizer a line would be one word; SentencePiece merges within words.
    words = (word for text in texts for word in text.split())
    tokenizer.train_from_iterator(words, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(name, normalized=False, special=True) for name in specials[:3]]
    )
    return tokenizer


FAMILIES: dict[str, Callable[[Iterable[str]], Tokenizer]] = {
    "gpt2": lambda _: Tokenizer.from_file(str(REAL / "gpt2" / "tokenizer.json")),
    "qwen3": lambda _: Tokenizer.from_file(str(REAL / "qwen3" / "tokenizer.json")),
    "llama3": llama3_style,
    "sentencepiece": sentencepiece_style,
}
