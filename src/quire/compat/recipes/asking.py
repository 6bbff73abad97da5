"""The variables that a recipe asks for, in any of its templates and branches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from jinja2 import meta

from quire.compat.recipes.budget import Budget
from quire.compat.recipes.folder import TemplateFolder
from quire.compat.recipes.problems import problem
from quire.compat.recipes.rendering import FAILURES, Templates
from quire.compat.recipes.sandbox import RecipeEnvironment
from quire.errors import InvalidRecipe, unknown_name

_VAR = re.compile(r"""!var\s+(?:\{[^{}]*?\bname\s*:\s*|\[\s*|name\s*:\s*)?["']?(\w+)""")


def require_asked(recipe: Path, variables: Mapping[str, object], built: Iterable[str]) -> None:
    """Raise for a variable that nothing asks for; ``built`` are those that its nodes ask for."""
    others = sorted(set(variables) - set(built))
    if not others:
        return
    asked = {*built, *variables_asked(recipe)}
    for name in others:
        if name not in asked:
            unknown = str(unknown_name("variable", name, asked))
            what = unknown if asked else f"unknown variable {name!r}; the recipe asks for none"
            raise problem(str(recipe), what, f'leave it out, or ask for it with !var "{name}"')


def variables_asked(recipe: Path) -> set[str]:
    """The names behind ``!var`` and in Jinja, also where a condition leaves them out.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.yaml"
    >>> _ = file.write_text("-- if long\\na: !var {name: size, default: 8}\\n-- endif\\n")
    >>> sorted(variables_asked(file))
    ['long', 'size']
    """
    templates = Templates(TemplateFolder(recipe))
    environment = RecipeEnvironment(templates, Budget())
    asked: set[str] = set()
    seen: set[str | None] = {None}  # a name that is computed
    waiting: list[str | None] = [recipe.name]
    while waiting:
        name = waiting.pop()
        if name is None or name in seen:
            continue
        seen.add(name)
        try:
            source, shown, _ = templates.get_source(environment, name)
            tree = environment.parse(source, name, shown)
            asked |= meta.find_undeclared_variables(tree)
        except (InvalidRecipe, *FAILURES):
            continue  # of a branch that was left out: what is rendered is read without an error
        asked.update(_VAR.findall(source))
        waiting += meta.find_referenced_templates(tree)
    return asked - set(environment.globals)
