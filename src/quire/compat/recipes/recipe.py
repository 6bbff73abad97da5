"""A recipe: its targets by name, each built on first use."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from quire.compat.recipes.errors import recipe_error
from quire.compat.recipes.loaders import FileAccess
from quire.errors import InvalidOption, InvalidRecipe, missing_dependency, unknown_name
from quire.text import Tokenizer, as_tokenizer


class UnknownTarget(InvalidRecipe, KeyError):
    """A recipe has no such target."""

    __str__ = ValueError.__str__


class Recipe(Mapping[str, Any]):
    """The targets of a recipe by name, without hidden ones (``.define``)."""

    def __init__(self, path: Path, builder: Any, names: list[str]) -> None:  # noqa: ANN401
        self.path = path
        self._builder = builder
        self._names = names

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - whatever the recipe describes
        if name not in self._names:
            known = unknown_name("target", name, self._names)
            raise UnknownTarget(str(recipe_error(str(self.path), str(known), "use a known one")))
        return self._builder.target(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would build the target

    def __repr__(self) -> str:
        return f"Recipe({str(self.path)!r}, targets={self._names})"


def load_recipe(
    path: str | os.PathLike[str],
    variables: Mapping[str, Any] | None = None,
    *,
    folders: Iterable[str | os.PathLike[str]] = (),
) -> Recipe:
    """The targets of a recipe file, as a mapping that builds each target on first use.

    ``variables`` are the values of ``!var``; Jinja sees those that are plain values. A variable
    that the recipe does not use is an error. A recipe reads files in its own folder, in
    ``folders``, and those whose paths are variables. Names come from a closed table and
    `register_name`; nothing in a file is imported or executed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.yaml"
    >>> _ = file.write_text("rows: !dict {max_length: 8, seed: !var {name: seed, default: 42}}")
    >>> load_recipe(file)["rows"]
    {'max_length': 8, 'seed': 42}
    """
    try:
        from quire.compat.recipes.builder import Builder
        from quire.compat.recipes.nodes import compose
        from quire.compat.recipes.rendering import render, variables_used
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        raise missing_dependency("jinja2", "a recipe", "hf") from None
    values = _checked(variables or {})
    file = Path(path).resolve()
    if not file.is_file():
        raise recipe_error(str(path), "there is no such recipe", "give the path of a YAML file")
    rendered = render(file, values)
    nodes = compose(rendered)
    builder = Builder(
        targets=nodes,
        rendered=rendered,
        variables=values,
        access=FileAccess(file.parent, folders, values),
    )
    builder.check()
    used = builder.variables_used()
    if not used >= set(values):
        _refuse_unused(file, values, used | variables_used(file))
    return Recipe(file, builder, [name for name in nodes if not name.startswith(".")])


def _refuse_unused(recipe: Path, variables: Mapping[str, Any], used: set[str]) -> None:
    for name in sorted(set(variables) - used):
        error = str(unknown_name("variable", name, used))
        what = error if used else f"unknown variable {name!r}; the recipe uses no variables"
        raise recipe_error(str(recipe), what, f'remove it, or use it: !var "{name}"')


def _checked(variables: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in variables.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidOption(f"the variable {name!r} must be a Python identifier")
        if isinstance(value, str) and ("\ue000" in value or "\ue001" in value):
            raise InvalidOption(f"the variable {name!r} contains U+E000 or U+E001; remove them")
    return dict(variables)


class Examples(NamedTuple):
    """Some packed rows, and the tokenizer that turns their tokens back into text."""

    rows: list[dict[str, Any]]
    tokenizer: Tokenizer | None


def examples_of(
    recipe: Recipe | str | os.PathLike[str], num_examples: int = 5, target: str = "train_dataset"
) -> Examples:
    """The first rows of a recipe's packed dataset, and its tokenizer if it has one.

    Packs the whole dataset: packing only part of it would give other rows.
    """
    if num_examples < 0:
        raise InvalidOption(f"num_examples is {num_examples} but must be >= 0")
    targets = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    dataset = targets[target]
    count = min(num_examples, len(dataset))
    rows = [dict(dataset[number]) for number in range(count)]
    return Examples(rows, as_tokenizer(targets["tokenizer"]) if "tokenizer" in targets else None)
