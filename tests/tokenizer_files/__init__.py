"""Tokenizers for tests: small ones in this folder, and real ones if present.

``small-qwen3`` and ``small-gpt2`` have the pipeline, special tokens and chat template behaviour of
their namesakes and a vocabulary of 1,782 and 757 tokens; `train` made them. ``qwen3`` and ``gpt2``
are the published files, which most clones lack.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

SMALL = Path(__file__).resolve().parent
REAL = SMALL.parents[1].parent / "shared" / "tokenizers"


def folder_of(name: str) -> Path:
    """The folder of a tokenizer; a base model has the folder of the model that was made of it."""
    return (SMALL if name.startswith("small-") else REAL) / name.removesuffix("-base")


def parameters(*names: str) -> list[Any]:
    """Cases to run a test on: the small namesakes always; real ones where present, marked slow.

    For ``@pytest.mark.parametrize("name", parameters("qwen3", "qwen3-base", "gpt2"))``.
    """
    here = [name for name in names if folder_of(name).is_dir()]
    real = [pytest.param(name, marks=pytest.mark.slow) for name in here]
    return [*(f"small-{name}" for name in names), *real]


@cache
def load(name: str, **options: Any) -> Any:
    """The tokenizer as transformers loads it; the same object for the same arguments.

    ``-base`` behind a name is the form of Qwen3's base model, in which EOS is PAD:

    >>> load("small-qwen3").eos_token, load("small-qwen3-base").eos_token
    ('<|im_end|>', '<|endoftext|>')
    """
    from transformers import AutoTokenizer

    if name.endswith("-base"):
        options = {"eos_token": "<|endoftext|>", **options}
    return AutoTokenizer.from_pretrained(folder_of(name), **options)
