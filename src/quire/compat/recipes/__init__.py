"""Recipes: YAML that describes tokenizer, dataset, map function and collator, like Forgather's.

`load_recipe` returns the targets of a file. Names come from a closed table; `register_name` adds to
it in code. See docs/guides/recipes.md for the syntax.
"""

from quire.compat.recipes.names import known_names, register_name
from quire.compat.recipes.recipe import Examples, Recipe, examples_of, load_recipe

__all__ = ["Examples", "Recipe", "examples_of", "known_names", "load_recipe", "register_name"]
