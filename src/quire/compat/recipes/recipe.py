"""A recipe: its targets by name, each built when it is first asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from quire.compat.recipes.folder import Reach
from quire.compat.recipes.problems import problem
from quire.errors import InvalidOption, InvalidRecipe, missing_dependency, unknown_name


class UnknownTarget(InvalidRecipe, KeyError):
    """A recipe has no such target."""

    __str__ = ValueError.__str__


class Recipe(Mapping[str, Any]):
    """The targets of a recipe by name; hidden ones (``.define``) are none."""

    def __init__(self, path: Path, builder: Any, names: list[str]) -> None:  # noqa: ANN401
        self.path = path
        self._builder = builder
        self._names = names

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - whatever the recipe says
        if name not in self._names:
            known = unknown_name("target", name, self._names)
            raise UnknownTarget(str(problem(str(self.path), str(known), "ask for a known one")))
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
    """The targets of a recipe file, a mapping that builds each when it is asked for.

    ``variables`` are what ``!var`` gives, and, where they are plain, what Jinja sees; one that the
    recipe asks for nowhere is an error. A recipe
    reads files of its own folder, of ``folders``, and those whose paths are variables. Names come
    from a closed table and `register_name`; nothing in a file is imported or executed.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.yaml"
    >>> _ = file.write_text("rows: !dict {max_length: 8, seed: !var {name: seed, default: 42}}")
    >>> load_recipe(file)["rows"]
    {'max_length': 8, 'seed': 42}
    """
    try:
        from quire.compat.recipes.asking import require_asked
        from quire.compat.recipes.building import Builder
        from quire.compat.recipes.nodes import compose
        from quire.compat.recipes.rendering import render
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        raise missing_dependency("jinja2", "a recipe", "hf") from None
    values = _checked(variables or {})
    file = Path(path).resolve()
    if not file.is_file():
        raise problem(str(path), "there is no such recipe", "give the path of a YAML file")
    rendered = render(file, values)
    nodes = compose(rendered)
    builder = Builder(
        targets=nodes,
        rendered=rendered,
        variables=values,
        reach=Reach(file.parent, folders, values),
    )
    builder.check()
    require_asked(file, values, builder.asked())
    return Recipe(file, builder, [name for name in nodes if not name.startswith(".")])


def _checked(variables: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in variables.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidOption(f"the variable {name!r} must be named like one of Python's")
        if isinstance(value, str) and ("\ue000" in value or "\ue001" in value):
            raise InvalidOption(f"the variable {name!r} holds U+E000 or U+E001; take them out")
    return dict(variables)
