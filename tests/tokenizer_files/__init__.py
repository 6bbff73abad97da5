"""Tokenizers for tests: small ones in this folder, real ones where they are beside the project.

``qwen3-small`` and ``gpt2-small`` have the pipeline, special tokens and chat template behaviour of
their namesakes and a vocabulary of 1,782 and 757 tokens; `train` made them. ``qwen3`` and ``gpt2``
are the published files, which most clones lack.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

SMALL = Path(__file__).resolve().parent
REAL = SMALL.parents[1].parent / "shared" / "tokenizers"


def folder_of(name: str) -> Path:
    """The folder of a tokenizer."""
    return (SMALL if name.endswith("-small") else REAL) / name


def available(*families: str) -> list[str]:
    """The tokenizers of these families to run a test on: always the small ones, then real ones.

    For ``@pytest.mark.parametrize("name", available("qwen3", "gpt2"))``.
    """
    small = [f"{family}-small" for family in families]
    return small + [family for family in families if folder_of(family).is_dir()]


@cache
def load(name: str, **special: str) -> Any:
    """The tokenizer as transformers loads it; the same object for the same arguments."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder_of(name), **special)


def form(name: str) -> Any:
    """A tokenizer by name; ``-base`` gives Qwen3's base model, in which EOS is PAD.

    >>> form("qwen3-small-base").eos_token
    '<|endoftext|>'
    """
    if name.endswith("-base"):
        return load(name.removesuffix("-base"), eos_token="<|endoftext|>")  # noqa: S106
    return load(name)
