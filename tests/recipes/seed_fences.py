"""The code fences of the documents that quire answers to, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SEEDS = Path(__file__).resolve().parents[2].parent / "shared" / "seeds"
REASON = "the seeds are not at ../shared/seeds"


def fences(seed: str, language: str) -> list[str]:
    """The fences of one seed and language, in order; none where the seeds are absent."""
    return [
        text
        for file in sorted(SEEDS.glob(f"{seed}_*.txt"))
        for text in re.findall(
            rf"^```{language}\n(.*?)^```", file.read_text("utf-8"), re.MULTILINE | re.DOTALL
        )
    ]


def as_parameters(language: str) -> list:
    """Every fence of seeds 000 and 001, or a skipped case where the seeds are absent."""
    found = [
        pytest.param(text, id=f"{seed}-{number}")
        for seed in ("000", "001")
        for number, text in enumerate(fences(seed, language))
    ]
    return found or [pytest.param("", marks=pytest.mark.skip(reason=REASON))]
