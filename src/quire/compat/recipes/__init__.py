"""Recipes: YAML that describes tokenizer, dataset, map function and collator, as Forgather's does.

`load_recipe` gives the targets of a file. Names stand in a closed table; `register_name` adds to it
in code. See docs/guides/recipes.md for the syntax.
"""

from quire.compat.recipes.examples import Examples, examples_of
from quire.compat.recipes.names import known_names, register_name
from quire.compat.recipes.recipe import Recipe, load_recipe

__all__ = ["Examples", "Recipe", "examples_of", "known_names", "load_recipe", "register_name"]
