"""Renders a recipe and its parents to one YAML text that records where each line came from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from jinja2 import BaseLoader, Environment, TemplateError, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError

from quire.compat.recipes.errors import Location, UnlocatedError, recipe_error
from quire.compat.recipes.sandbox import RecipeEnvironment
from quire.errors import InvalidRecipe, unknown_name

MAX_BYTES = 64 << 10
"""A recipe is a page or two; a larger file is not a recipe."""
SHIPPED = Path(__file__).parent / "templates"
_VAR = re.compile(r"""!var\s+(?:\{[^{}]*?\bname\s*:\s*|\[\s*|name\s*:\s*)?["']?(\w+)""")

_MARKS = re.compile("\ue000([^\ue000\ue001]*):(\\d+)\ue001")
_MARKS_AHEAD = re.compile(rf"(?:\s*{_MARKS.pattern})+")
_MAX_PARENTS = 20
FAILURES = (
    TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
    RecursionError, MemoryError, SyntaxError,
)  # fmt: skip
"""What Jinja raises for an invalid template, or for one that does something forbidden."""
_MEANINGS: dict[type[BaseException], tuple[str, str]] = {
    SecurityError: ("not allowed in a recipe: {}", "write the value itself"),
    UndefinedError: (
        "{}",
        "pass it: variables={…}, or --var name=… on the command line; or a default: "
        "{{ name | default(…) }}",
    ),
    RecursionError: ("nested too deeply, or endless", "end the recursion, or flatten it"),
    BaseException: ("not a template: {}", "see the guide to recipes for the syntax"),
}
"""What an error means, and its remedy; the first kind that fits counts."""
Node = Any  # of PyYAML, which has no types


@dataclass(frozen=True, slots=True)
class Rendered:
    """YAML, and the file and line that each of its lines came from."""

    text: str
    locations: tuple[Location, ...]

    def location(self, line: int) -> Location:
        """Where the line with this number, from 0, came from."""
        return self.locations[min(line, len(self.locations) - 1)]

    def error(self, node: Node, what: str, remedy: str) -> InvalidRecipe:
        """The error of a YAML node."""
        return recipe_error(self.location(node.start_mark.line), what, remedy)


def render(recipe: Path, variables: Mapping[str, object]) -> Rendered:
    """The recipe with its parents, as YAML; templates can read plain variables."""
    templates = Templates(recipe)
    environment = RecipeEnvironment(templates)
    try:
        _check_parents(environment, templates, recipe.name)
        text = environment.get_template(recipe.name).render(_plain(variables))
    except UnlocatedError as error:
        raise error.at(templates.location(error) or templates.shown(recipe.name)) from None
    except InvalidRecipe:
        raise
    except FAILURES as error:
        raise templates.error(error, recipe) from None
    return _located(text, templates)


def _plain(variables: Mapping[str, object]) -> dict[str, object]:
    """The variables that a template may see: an object would let it call the object's methods."""
    kinds = (str, int, float, type(None))
    return {name: value for name, value in variables.items() if isinstance(value, kinds)}


def variables_used(recipe: Path) -> set[str]:
    """The variable names in ``!var`` and in Jinja, including branches that are not taken.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "recipe.yaml"
    >>> _ = file.write_text("-- if long\\na: !var {name: size, default: 8}\\n-- endif\\n")
    >>> sorted(variables_used(file))
    ['long', 'size']
    """
    templates = Templates(recipe)
    environment = RecipeEnvironment(templates)
    used: set[str] = set()
    seen: set[str | None] = {None}  # None: the name of the template is computed
    waiting: list[str | None] = [recipe.name]
    while waiting:
        name = waiting.pop()
        if name is None or name in seen:
            continue
        seen.add(name)
        try:
            source, shown, _ = templates.get_source(environment, name)
            tree = environment.parse(source, name, shown)
            used |= meta.find_undeclared_variables(tree)
        except (InvalidRecipe, *FAILURES):
            continue  # in a branch that is not taken: rendering succeeded without it
        used.update(_VAR.findall(source))
        waiting += meta.find_referenced_templates(tree)
    return used - set(environment.globals)


def shipped_names() -> list[str]:
    """The templates that come with quire."""
    return sorted(path.relative_to(SHIPPED).as_posix() for path in SHIPPED.rglob("*.yaml"))


class Templates(BaseLoader):
    """Loads templates by name: from the recipe's folder, then from those that ship with quire."""

    def __init__(self, recipe: Path) -> None:
        self._roots = (recipe.parent, SHIPPED.resolve())
        self._files: dict[str, str] = {}

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        """The text and the file of a template."""
        file = self._find(template)
        shipped = self._roots[1]
        is_shipped = file.is_relative_to(shipped)
        shown = f"quire:{file.relative_to(shipped)}" if is_shipped else str(file)
        self._files[template] = shown
        text = _read_template(file, shown)
        if "\ue000" in text or "\ue001" in text:
            raise recipe_error(
                shown, "contains U+E000 or U+E001", "remove these private characters"
            )
        return text, shown, lambda: True

    def _find(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or "\\" in name or ":" in name or ".." in parts:
            raise UnlocatedError(
                f"the template name {name!r} leaves the folder of templates",
                "name a file below the recipe's folder, such as 'parents/base.yaml'",
            )
        for root in self._roots:
            file = (root / name).resolve()
            if not file.is_file():
                continue
            if not file.is_relative_to(root):
                raise UnlocatedError(
                    f"the template {name!r} is a link that leads out of its folder, to {file}",
                    "copy the file into the recipe's folder",
                )
            return file
        raise UnlocatedError(
            f"there is no template {name!r}",
            f"put it next to the recipe; quire ships: {', '.join(shipped_names())}",
        )

    def shown(self, name: str) -> str:
        """The template's file name in messages."""
        return self._files.get(name, name)

    def error(self, error: BaseException, recipe: Path) -> InvalidRecipe:
        """The error of a template as one of quire's."""
        location = self.location(error) or Location(self.shown(recipe.name))
        what = str(error).rstrip(".") or type(error).__name__
        meaning, remedy = next(
            texts for kind, texts in _MEANINGS.items() if isinstance(error, kind)
        )
        return recipe_error(location, meaning.format(what), remedy)

    def location(self, error: BaseException) -> Location | None:
        """The template line that was being rendered, if any."""
        if isinstance(error, TemplateSyntaxError):
            return Location(self.shown(error.name or ""), error.lineno)
        files = set(self._files.values())
        frames = [
            Location(frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename in files
        ]
        return frames[-1] if frames else None


def _check_parents(environment: Environment, templates: Templates, name: str) -> None:
    """Raise if a recipe extends itself, or contains something that its parents would ignore."""
    chain: list[tuple[str, nodes.Template]] = []
    location: Location | str = name
    parent: str | None = name
    while parent is not None:
        if len(chain) >= _MAX_PARENTS or parent in (seen for seen, _ in chain):
            names = " -> ".join([*(seen for seen, _ in chain), parent])
            raise recipe_error(location, f"extends itself: {names}", "remove one of these lines")
        try:
            source, shown, _ = templates.get_source(environment, parent)
        except UnlocatedError as error:
            raise error.at(location) from None
        chain.append((parent, environment.parse(source, parent, shown)))
        parent, location = _parent(chain[-1][1], shown)
    _check_blocks(chain, templates)


def _parent(tree: nodes.Template, shown: str) -> tuple[str | None, Location]:
    """The name of the parent, and the line that names it."""
    found = list(tree.find_all(nodes.Extends))
    if not found:
        return None, Location(shown)
    extends, location = found[0], Location(shown, found[-1].lineno)
    if len(found) > 1 or extends not in tree.body:
        raise recipe_error(
            location, "extends inside a condition, or twice", "extend one template, unconditionally"
        )
    if not isinstance(extends.template, nodes.Const) or not isinstance(extends.template.value, str):
        raise recipe_error(location, "the parent's name is computed", "write it in quotes")
    return extends.template.value, location


def _check_blocks(chain: list[tuple[str, nodes.Template]], templates: Templates) -> None:
    """Raise for what Jinja ignores silently: blocks that no parent has, text outside blocks."""
    known: set[str] = set()
    for number, (name, tree) in enumerate(reversed(chain)):
        shown = templates.shown(name)
        if number:
            for part in tree.body:
                _check_part(part, known, shown)
        known |= {block.name for block in tree.find_all(nodes.Block)}


def _check_part(part: nodes.Node, known: set[str], shown: str) -> None:
    if isinstance(part, nodes.Block) and part.name not in known:
        what = str(unknown_name("block", part.name, known))
        raise recipe_error(
            Location(shown, part.lineno), what, "give it the name of a parent's block"
        )
    if isinstance(part, nodes.Output):
        for piece in part.nodes:
            text = piece.data if isinstance(piece, nodes.TemplateData) else "{{ … }}"
            _check_text(text, piece.lineno, shown)


def _check_text(text: str, line: int, shown: str) -> None:
    for text_line in text.split("\n"):
        mark = _MARKS.match(text_line)
        line = int(mark[2]) if mark else line
        rest = _MARKS.sub("", text_line).strip()
        if rest and not rest.startswith("#"):
            raise recipe_error(
                Location(shown, line),
                f"{rest[:40]!r} is outside every block, where a template with a parent is ignored",
                "put it into a [section] of the parent",
            )


def _read_template(file: Path, shown: str) -> str:
    """The text of a template of reasonable size."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise recipe_error(
            shown, f"cannot be read: {error.strerror}", "check its permissions"
        ) from None
    if len(data) > MAX_BYTES:
        raise recipe_error(
            shown,
            f"has more than {MAX_BYTES} bytes",
            "a recipe names data and does not contain it; put the data into a separate file",
        )
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise recipe_error(
            shown, f"is not UTF-8: {error.reason} at byte {error.start}", "save it as UTF-8"
        ) from None


def _located(text: str, templates: Templates) -> Rendered:
    lines, locations = [], []
    here = Location("the recipe")
    for line in text.split("\n"):
        # Blocks leave marks without text after them; the last one belongs to what follows.
        if mark := _MARKS_AHEAD.match(line) or _MARKS.search(line):
            here = Location(templates.shown(mark[1]), int(mark[2]))
        lines.append(_MARKS.sub("", line))
        locations.append(here)
    return Rendered("\n".join(lines), tuple(locations))
