"""The files that a recipe may name: those of its own folder, and what the caller opened to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from quire.compat.recipes.problems import Unplaced, problem

MAX_BYTES = 64 << 10
"""A recipe is a page or two; a larger file is none."""
SHIPPED = Path(__file__).parent / "templates"


class TemplateFolder:
    """Finds templates by name: beside the recipe first, then among those that ship with quire."""

    def __init__(self, recipe: Path) -> None:
        self._roots = (recipe.parent, SHIPPED.resolve())

    def find(self, name: str) -> Path:
        """The file of a template."""
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or "\\" in name or ":" in name or ".." in parts:
            raise Unplaced(
                f"the template name {name!r} leaves the folder of templates",
                "name a file below the recipe's folder, such as 'parents/base.yaml'",
            )
        for root in self._roots:
            file = (root / name).resolve()
            if not file.is_file():
                continue
            if not file.is_relative_to(root):
                raise Unplaced(
                    f"the template {name!r} is a link that leads out of its folder, to {file}",
                    "copy the file into the recipe's folder",
                )
            return file
        raise Unplaced(
            f"there is no template {name!r}",
            f"put it beside the recipe; quire ships: {', '.join(shipped_names())}",
        )

    def shown(self, file: Path) -> str:
        """The file's name in messages."""
        shipped = self._roots[1]
        return f"quire:{file.relative_to(shipped)}" if file.is_relative_to(shipped) else str(file)


def shipped_names() -> list[str]:
    """The templates that come with quire."""
    return sorted(path.relative_to(SHIPPED).as_posix() for path in SHIPPED.rglob("*.yaml"))


def read_template(file: Path, shown: str) -> str:
    """The text of a template, if it is a text of reasonable size."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise problem(shown, f"cannot be read: {error.strerror}", "check its permissions") from None
    if len(data) > MAX_BYTES:
        raise problem(
            shown,
            f"has more than {MAX_BYTES} bytes",
            "a recipe names data and does not hold it; put the data into a file of its own",
        )
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise problem(
            shown, f"is not UTF-8: {error.reason} at byte {error.start}", "save it as UTF-8"
        ) from None


class Reach:
    """The places that a recipe may read data from.

    Its own folder, the folders that the caller opens, and whatever the caller passed as a variable.
    A relative string starts at the recipe's folder, a relative `Path` at the working directory.
    """

    def __init__(
        self,
        folder: Path,
        opened: Iterable[str | os.PathLike[str]] = (),
        variables: Mapping[str, object] | None = None,
    ) -> None:
        self._folder = folder
        values = list((variables or {}).values())
        values += [item for value in values if isinstance(value, list | tuple) for item in value]
        named = [*(Path(one) for one in opened), *values]
        self._roots = [folder, *(self._path(one).resolve() for one in named if _is_path(one))]

    def files(self, named: str | os.PathLike[str]) -> list[Path]:
        """The file of this name, or those that match a pattern, by name."""
        path = self._path(named)
        is_given = path.resolve() in self._roots[1:]
        if path.is_dir() and not is_given:  # it may hold links that lead out
            raise Unplaced(f"{named} is a folder", f"name its files, such as {named}/*.jsonl")
        if path.exists() or not _is_pattern(path):
            return [self.path(path)]
        if ".." in path.parts:
            raise Unplaced(f"the pattern {named} goes upwards", "name the folder without '..'")
        at = next(i for i, part in enumerate(path.parts) if _is_pattern(Path(part)))
        root = Path(*path.parts[:at])
        if not is_given:
            self.path(root)
        found = sorted(p for p in root.glob("/".join(path.parts[at:])) if p.is_file())
        if not found:
            raise Unplaced(f"no file in {root} matches {named}", "give an existing file")
        return found if is_given else [self.path(file) for file in found]

    def path(self, named: str | os.PathLike[str]) -> Path:
        """The file or folder of this name, if it is there and the recipe may read it."""
        path = self._path(named)
        real = path.resolve()
        if not any(real == root or real.is_relative_to(root) for root in self._roots):
            raise Unplaced(
                f"{named} stands outside the recipe's folder, {self._folder}",
                "pass the path as a variable (!var), or open its folder: load_recipe(folders=[…])",
            )
        if not path.exists():
            raise Unplaced(
                f"there is no {path}",
                "name a local file, from the recipe's folder on; nothing is fetched from a hub",
            )
        return path

    def _path(self, named: str | os.PathLike[str]) -> Path:
        return self._folder / named if isinstance(named, str) else Path(named).absolute()


def _is_pattern(path: Path) -> bool:
    return any(sign in str(path) for sign in "*?[")


def _is_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a variable can be a path at all."""
    if isinstance(value, os.PathLike):
        return True
    return isinstance(value, str) and 0 < len(value) < 4096 and "\0" not in value
