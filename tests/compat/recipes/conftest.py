"""Small recipes, and documents to pack with them."""

from __future__ import annotations

import json
import random

import pytest
from tests.compat.recipes.seed_fences import HERE

from quire.compat.recipes import load_recipe

# It runs the Python snippets of documents that a clone alone does not have.
collect_ignore = [] if HERE else ["test_seeds_python.py"]


@pytest.fixture
def write(tmp_path):
    """Writes a file next to the recipe; returns its path."""

    def write_file(text: str, name: str = "recipe.yaml"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return write_file


@pytest.fixture
def load(write):
    """Loads a recipe of this text, with these variables."""

    def load_text(text: str, **variables):
        return load_recipe(write(text), variables)

    return load_text


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Documents of every length, together well over 32,768 bytes."""
    rng = random.Random(7)
    words = ["quire", "sheet", "fold", "bind", "page", "row", "plan", "window", "batch", "token"]
    return [" ".join(rng.choices(words, k=rng.randint(1, 120))) for _ in range(200)]


@pytest.fixture
def data(texts, write):
    """The documents as a file next to the recipe."""
    return write("".join(json.dumps({"text": text}) + "\n" for text in texts), "data.jsonl")
