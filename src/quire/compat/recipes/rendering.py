"""A recipe and its parents to one YAML text, in which every line knows where it came from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import BaseLoader, Environment, TemplateError, UndefinedError, nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError

from quire.compat.recipes.budget import Budget
from quire.compat.recipes.folder import TemplateFolder, read_template
from quire.compat.recipes.problems import Place, Unplaced, problem
from quire.compat.recipes.sandbox import RecipeEnvironment
from quire.errors import InvalidRecipe, unknown_name

_MARKS = re.compile("\ue000([^\ue000\ue001]*):(\\d+)\ue001")
_MARKS_AHEAD = re.compile(rf"(?:\s*{_MARKS.pattern})+")
_MAX_PARENTS = 20
FAILURES = (
    TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError,
    RecursionError, MemoryError, SyntaxError,
)  # fmt: skip
"""What Jinja raises for a template that is none, or that does what it may not."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """YAML, and where each of its lines stands in the files."""

    text: str
    places: tuple[Place, ...]

    def place(self, line: int) -> Place:
        """Where the line with this number, from 0, came from."""
        return self.places[min(line, len(self.places) - 1)]


def render(recipe: Path, variables: Mapping[str, object]) -> Rendered:
    """The recipe with its parents, as YAML; plain variables are known to the templates."""
    templates = Templates(TemplateFolder(recipe))
    environment = RecipeEnvironment(templates, Budget())
    try:
        _require_sound_parents(environment, templates, recipe.name)
        text = environment.get_template(recipe.name).render(_plain(variables))
    except Unplaced as error:
        raise error.at(templates.place(error) or templates.shown(recipe.name)) from None
    except InvalidRecipe:
        raise
    except FAILURES as error:
        raise templates.problem(error, recipe) from None
    return _located(text, templates)


def _plain(variables: Mapping[str, object]) -> dict[str, object]:
    """The variables that a template may see: an object would let it call what the object can do."""
    kinds = (str, int, float, type(None))
    return {name: value for name, value in variables.items() if isinstance(value, kinds)}


class Templates(BaseLoader):
    """Loads templates from the folders of a recipe, and says what went wrong with them."""

    def __init__(self, folder: TemplateFolder) -> None:
        self._folder = folder
        self._files: dict[str, str] = {}

    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        """The text and the file of a template."""
        file = self._folder.find(template)
        shown = self._files[template] = self._folder.shown(file)
        text = read_template(file, shown)
        if "\ue000" in text or "\ue001" in text:
            raise problem(shown, "holds U+E000 or U+E001", "take these private characters out")
        return text, shown, lambda: True

    def shown(self, name: str) -> str:
        """The template's file, as messages give it."""
        return self._files.get(name, name)

    def problem(self, error: BaseException, recipe: Path) -> InvalidRecipe:
        """The error of a template as one of quire's."""
        place = self.place(error) or Place(self.shown(recipe.name))
        what = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, SecurityError):
            return problem(place, f"not for recipes: {what}", "write the value itself")
        if isinstance(error, UndefinedError):
            return problem(
                place,
                what,
                "pass it: variables={…}, or --var name=… at the command; or give it a default: "
                "{{ name | default(…) }}",
            )
        if isinstance(error, RecursionError):
            return problem(
                place, "nested too deep, or without end", "end the recursion, or flatten it"
            )
        return problem(place, f"not a template: {what}", "see the guide to recipes for the syntax")

    def place(self, error: BaseException) -> Place | None:
        """The line of the template that was at work, if one was."""
        if isinstance(error, TemplateSyntaxError):
            return Place(self.shown(error.name or ""), error.lineno)
        files = set(self._files.values())
        frames = [
            Place(frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename in files
        ]
        return frames[-1] if frames else None


def _require_sound_parents(environment: Environment, templates: Templates, name: str) -> None:
    """Raise if a recipe extends itself, or says something that its parents would not hear."""
    chain: list[tuple[str, nodes.Template]] = []
    place: Place | str = name
    parent: str | None = name
    while parent is not None:
        if len(chain) >= _MAX_PARENTS or parent in (seen for seen, _ in chain):
            names = " -> ".join([*(seen for seen, _ in chain), parent])
            raise problem(place, f"extends itself: {names}", "take one of these lines out")
        try:
            source, shown, _ = templates.get_source(environment, parent)
        except Unplaced as error:
            raise error.at(place) from None
        chain.append((parent, environment.parse(source, parent, shown)))
        parent, place = _parent(chain[-1][1], shown)
    _require_heard(chain, templates)


def _parent(tree: nodes.Template, shown: str) -> tuple[str | None, Place]:
    """The name of the parent, and the line that says so."""
    found = list(tree.find_all(nodes.Extends))
    if not found:
        return None, Place(shown)
    extends, place = found[0], Place(shown, found[-1].lineno)
    if len(found) > 1 or extends not in tree.body:
        raise problem(place, "extends under a condition, or twice", "extend one template, always")
    if not isinstance(extends.template, nodes.Const) or not isinstance(extends.template.value, str):
        raise problem(place, "the parent's name is computed", "write it in quotes")
    return extends.template.value, place


def _require_heard(chain: list[tuple[str, nodes.Template]], templates: Templates) -> None:
    """Raise for what Jinja drops without a word: blocks that no parent has, text outside blocks."""
    known: set[str] = set()
    for number, (name, tree) in enumerate(reversed(chain)):
        shown = templates.shown(name)
        if number:
            for part in tree.body:
                _require_part_heard(part, known, shown)
        known |= {block.name for block in tree.find_all(nodes.Block)}


def _require_part_heard(part: nodes.Node, known: set[str], shown: str) -> None:
    if isinstance(part, nodes.Block) and part.name not in known:
        what = str(unknown_name("block", part.name, known))
        raise problem(Place(shown, part.lineno), what, "give it the name of a parent's block")
    if isinstance(part, nodes.Output):
        for piece in part.nodes:
            text = piece.data if isinstance(piece, nodes.TemplateData) else "{{ … }}"
            _require_silent(text, piece.lineno, shown)


def _require_silent(text: str, line: int, shown: str) -> None:
    for said in text.split("\n"):
        mark = _MARKS.match(said)
        line = int(mark[2]) if mark else line
        rest = _MARKS.sub("", said).strip()
        if rest and not rest.startswith("#"):
            raise problem(
                Place(shown, line),
                f"{rest[:40]!r} stands outside every block, where a template with a parent is mute",
                "put it into a [section] of the parent",
            )


def _located(text: str, templates: Templates) -> Rendered:
    lines, places = [], []
    here = Place("the recipe")
    for line in text.split("\n"):
        # Blocks leave marks with no text behind them; the last one belongs to what follows.
        if mark := _MARKS_AHEAD.match(line) or _MARKS.search(line):
            here = Place(templates.shown(mark[1]), int(mark[2]))
        lines.append(_MARKS.sub("", line))
        places.append(here)
    return Rendered("\n".join(lines), tuple(places))
