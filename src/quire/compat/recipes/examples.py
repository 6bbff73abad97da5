"""The first rows of a recipe, to look at."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from quire.compat.recipes.recipe import Recipe, load_recipe
from quire.errors import InvalidOption
from quire.text import Tokenizer, as_tokenizer


class Examples(NamedTuple):
    """Some packed rows, and what turns their tokens back into text."""

    rows: list[dict[str, Any]]
    tokenizer: Tokenizer | None


def examples_of(
    recipe: Recipe | str | os.PathLike[str], num_examples: int = 5, target: str = "train_dataset"
) -> Examples:
    """The first rows of a recipe's packed dataset, and its tokenizer if it has one.

    The whole dataset is packed for it: rows of a part would be other rows.
    """
    if num_examples < 0:
        raise InvalidOption(f"num_examples is {num_examples} but must be >= 0")
    targets = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    dataset = targets[target]
    count = min(num_examples, len(dataset))
    rows = [dict(dataset[number]) for number in range(count)]
    return Examples(rows, as_tokenizer(targets["tokenizer"]) if "tokenizer" in targets else None)
