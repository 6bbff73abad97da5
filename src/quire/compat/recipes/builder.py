"""Builds objects from nodes, on first use; nodes that share an anchor share their object."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import yaml  # type: ignore[import-untyped]

from quire.compat.recipes.errors import UnlocatedError
from quire.compat.recipes.loaders import FileAccess, load_tokenizer
from quire.compat.recipes.names import Function, is_own, needs_file_access, resolve
from quire.compat.recipes.nodes import CALLS, PLAIN, Tag, children, read_tag
from quire.compat.recipes.rendering import Node, Rendered
from quire.errors import InvalidRecipe, MissingDependency, unknown_name

Built = Any  # whatever a recipe describes
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


@dataclass(kw_only=True)
class Builder:
    """Builds the targets of one recipe."""

    targets: Mapping[str, Node]
    rendered: Rendered
    variables: Mapping[str, Any]
    access: FileAccess
    _built: dict[int, Built] = field(default_factory=dict)
    _in_progress: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raise if any node has an unknown tag or name; builds nothing."""
        remedy = "use a known one, or register_name(…) in the program"
        for target, node in self._nodes():
            with self._located(node, remedy, target):
                read_tag(node)

    def variables_used(self) -> set[str]:
        """The variables that any node reads."""
        names: set[str] = set()
        for _, node in self._nodes():
            if read_tag(node).kind == "var":
                with suppress(InvalidRecipe):  # building the node raises it
                    names.add(self._name_and_default(node)[0])
        return names

    def _nodes(self) -> Iterator[tuple[str, Node]]:
        """Every node once, with the target it was found in."""
        seen: set[int] = set()
        for target, top in self.targets.items():
            waiting = [top]
            while waiting:
                node = waiting.pop()
                if id(node) in seen or node.tag == PLAIN + "merge":
                    continue
                seen.add(id(node))
                yield target, node
                waiting += children(node)

    def target(self, name: str) -> Built:
        """The object of a target."""
        if name in self._in_progress:
            circle = " -> ".join([*self._in_progress, name])
            raise self._error(self.targets[name], f"needs itself: {circle}", "break the cycle")
        self._in_progress.append(name)
        try:
            return self._build(self.targets[name])
        finally:
            self._in_progress.pop()

    def _build(self, node: Node) -> Built:
        tag = read_tag(node)
        if tag.kind == "scalar":
            with self._located(node, "quote the value"):
                return _CONSTRUCTOR.construct_object(node)
        if tag.kind == "factory":
            return self._call(node, tag)
        if id(node) not in self._built:
            self._built[id(node)] = self._made(node, tag)
        return self._built[id(node)]

    def _made(self, node: Node, tag: Tag) -> Built:
        if tag.kind in CALLS:
            return self._call(node, tag)
        if tag.kind == "var":
            return self._variable(node)
        if tag.kind == "target":
            return self._other_target(node)
        if tag.kind == "dict":
            return {key: self._build(value) for key, value in self._pairs(node).items()}
        items = [self._build(item) for item in children(node)]
        return tuple(items) if tag.kind == "tuple" else items

    def _pairs(self, node: Node) -> dict[Any, Node]:
        """The values of a mapping by key; the later one of a repeated key.

        A child repeats a key after ``== super()`` to override its parent.
        """
        own: dict[Any, Node] = {}
        merged: dict[Any, Node] = {}
        for key, value in node.value:  # the empty string if nothing follows !dict
            if key.tag == PLAIN + "merge":
                for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    merged = self._pairs(self._mergeable(one)) | merged
            elif isinstance(key, yaml.ScalarNode):
                own[self._build(key)] = value
            else:
                raise self._error(key, "a key is a collection", "use a name as the key")
        return merged | own

    def _mergeable(self, node: Node) -> Node:
        is_empty = isinstance(node, yaml.ScalarNode) and not node.value
        if is_empty or (isinstance(node, yaml.MappingNode) and read_tag(node).kind == "dict"):
            return node
        raise self._error(
            node, "<< merges something that is not a mapping", "merge a !dict, by its alias"
        )

    def _variable(self, node: Node) -> Built:
        name, default = self._name_and_default(node)
        if name in self.variables:
            return self.variables[name]
        if default is None:
            raise self._error(
                node,
                f"the variable {name!r} is not given and has no default",
                f"pass it: load_recipe(path, variables={{{name!r}: …}}), or --var {name}=… on the "
                "command line",
            )
        return self._build(default)

    def _name_and_default(self, node: Node) -> tuple[str, Node | None]:
        """The name of a variable, and the node of its default."""
        if isinstance(node, yaml.MappingNode):
            pairs = self._pairs(node)
            if "name" in pairs and set(pairs) <= {"name", "default"}:
                return str(pairs["name"].value), pairs.get("default")
        elif isinstance(node, yaml.SequenceNode):
            if 1 <= len(node.value) <= 2:
                return str(node.value[0].value), node.value[1] if len(node.value) > 1 else None
        elif node.value:
            return str(node.value), None
        raise self._error(
            node, "!var does not name a variable", 'write !var "name" or {name: …, default: …}'
        )

    def _other_target(self, node: Node) -> Built:
        if node.value in self.targets:
            return self.target(node.value)
        error = unknown_name("target", node.value, self.targets)
        raise self._error(node, str(error), "name a target of this recipe")

    def _call(self, node: Node, tag: Tag) -> Built:
        args, kwargs = self._arguments(node)
        with self._located(node, f"fix the arguments of {tag.name}"):
            function = resolve(tag.name)
            if needs_file_access(tag.name):
                args = [self.access, *args]
            bound = _bind(function, args, kwargs)
            if is_own(tag.name) and isinstance(bound.arguments.get("tokenizer"), str):
                path = bound.arguments["tokenizer"]  # checked like any other path of the recipe
                bound.arguments["tokenizer"] = load_tokenizer(self.access, path)
            if tag.kind == "partial":
                return functools.partial(function, *bound.args, **bound.kwargs)
            return function(*bound.args, **bound.kwargs)

    def _arguments(self, node: Node) -> tuple[list[Built], dict[str, Built]]:
        if isinstance(node, yaml.SequenceNode):
            return [self._build(item) for item in node.value], {}
        if isinstance(node, yaml.ScalarNode):
            if not node.value:
                return [], {}
            raise self._error(
                node, f"the arguments are {node.value!r}", "give names and values, or a list"
            )
        pairs = self._pairs(node)
        if pairs and set(pairs) <= {"args", "kwargs"}:
            args = self._build(pairs["args"]) if "args" in pairs else []
            kwargs = self._build(pairs["kwargs"]) if "kwargs" in pairs else {}
        else:
            args, kwargs = [], {key: self._build(value) for key, value in pairs.items()}
        if not isinstance(args, list) or not all(isinstance(key, str) for key in kwargs):
            raise self._error(
                node, "args is not a list, or a key of kwargs is not a name", "fix them"
            )
        return args, dict(kwargs)

    @contextmanager
    def _located(self, node: Node, remedy: str, target: str | None = None) -> Iterator[None]:
        """Add the target, the file and the line to errors of what a recipe asks for."""
        try:
            yield
        except MissingDependency:
            raise
        except UnlocatedError as error:
            raise self._error(node, error.what, error.remedy, target) from error
        except Exception as error:
            known = isinstance(error, ValueError | TypeError)
            what = str(error) if known else f"{type(error).__name__}: {error}"
            raise self._error(node, what, remedy, target) from error

    def _error(
        self, node: Node, what: str, remedy: str, target: str | None = None
    ) -> InvalidRecipe:
        name = target or (self._in_progress[-1] if self._in_progress else "")
        return self.rendered.error(node, f"target {name.partition('#')[0]!r}: {what}", remedy)


def _bind(
    function: Function, args: list[Built], kwargs: dict[str, Built]
) -> inspect.BoundArguments:
    """The arguments by name; an unknown one is an error that suggests the nearest."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in kwargs:
            if name not in parameters:
                raise unknown_name("argument", name, [p for p in parameters if p != "access"])
    return signature.bind_partial(*args, **kwargs)
