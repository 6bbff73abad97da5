"""Qwen3's and GPT-2's own tokenizers, which stand beside the project."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

TOKENIZERS = Path(__file__).resolve().parents[2].parent / "shared" / "tokenizers"


def folder_of(name: str) -> Path:
    folder = TOKENIZERS / name
    if not folder.is_dir():
        pytest.skip(f"the tokenizer of {name} is not at ../shared/tokenizers")
    return folder


@cache
def load(name: str, **special: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder_of(name), **special)
