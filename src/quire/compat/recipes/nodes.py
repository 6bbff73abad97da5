"""YAML text to a finite graph of nodes, anchors shared and nothing built, and the tags of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml  # type: ignore[import-untyped]

from quire.compat.recipes.errors import recipe_error
from quire.compat.recipes.names import require_name
from quire.compat.recipes.rendering import Node, Rendered
from quire.errors import InvalidOption, unknown_name

MAX_DEPTH = 40
MAX_NODES = 20_000
"""Counted with every alias expanded, so that a few lines cannot become millions of values."""
PLAIN = "tag:yaml.org,2002:"
_UNSUPPORTED = {PLAIN + "timestamp", PLAIN + "value"}
_SCALARS = {PLAIN + kind for kind in ("null", "bool", "int", "float", "str")}
CALLS = ("partial", "singleton", "factory")
_ALIASES = {"call": "singleton", "lambda": "partial"}
_KINDS = {
    "dict": yaml.MappingNode,
    "list": yaml.SequenceNode,
    "tuple": yaml.SequenceNode,
    "var": None,
    "target": yaml.ScalarNode,
}
_TAG = re.compile(r"!(\w+)(?::([^@]*))?(?:@\w*)?")
_CONTAINERS = {PLAIN + "map": "dict", PLAIN + "seq": "list"}


def compose(rendered: Rendered) -> dict[str, Node]:
    """The node of every top-level key; hidden ones (``.define``) are numbered."""
    try:
        root = _Loader(rendered.text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error, rendered) from None
    except yaml.YAMLError as error:
        raise recipe_error(
            rendered.location(0), f"not YAML: {error}", "remove the character"
        ) from None
    if root is None:
        return {}
    _require_finite(root, rendered)
    if not isinstance(root, yaml.MappingNode) or root.tag != PLAIN + "map":
        raise rendered.error(
            root,
            "a recipe is a mapping of names to targets, and this is not",
            "begin with a name and a colon, such as 'tokenizer: …'",
        )
    return dict(_named(root, rendered))


def _named(root: Node, rendered: Rendered) -> Iterator[tuple[str, Node]]:
    for number, (key, value) in enumerate(root.value):
        if not isinstance(key, yaml.ScalarNode):
            raise rendered.error(key, "a target has no name", "name it")
        if key.tag == PLAIN + "merge":
            raise rendered.error(
                key, "<< at the top level, where targets are named", "merge inside a target"
            )
        hidden = key.value.startswith(".")
        yield (f"{key.value}#{number}" if hidden else key.value), value


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Composes nodes up to a limited depth; dates stay text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNSUPPORTED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0
    count = 0

    def compose_node(self, parent: Node, index: object) -> Node:
        self.depth += 1
        self.count += 1
        if self.depth > MAX_DEPTH:
            raise self._too_much(f"nested more than {MAX_DEPTH} deep")
        if self.count > MAX_NODES:
            raise self._too_much(f"more than {MAX_NODES} values")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def _too_much(self, what: str) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(problem=what, problem_mark=self.peek_event().start_mark)


def _yaml_error(error: yaml.MarkedYAMLError, rendered: Rendered) -> Exception:
    mark = error.problem_mark or error.context_mark
    location = rendered.location(mark.line if mark else 0)
    what = ", ".join(part for part in (error.context, error.problem) if part)
    if "undefined alias" in what:
        name = what.rpartition(" ")[2].strip("'")
        return recipe_error(
            location, f"*{name} has no anchor before it", f"define &{name} in a section above"
        )
    if "more than" in what:
        return recipe_error(location, what, "a recipe names data and does not contain it")
    return recipe_error(location, f"not YAML: {what}", "fix the line, or quote the value")


def _require_finite(root: Node, rendered: Rendered) -> None:
    """Raise if a node contains itself, or if expanding the aliases would give too many values."""
    sizes: dict[int, int | None] = {}
    waiting = [(root, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            sizes[id(node)] = 1 + sum(sizes[id(child)] or 0 for child in children(node))
            if (sizes[id(node)] or 0) > MAX_NODES:
                what = f"its aliases expand to more than {MAX_NODES} values"
                raise rendered.error(node, what, "nest fewer aliases")
        elif id(node) not in sizes:
            sizes[id(node)] = None  # in progress
            waiting.append((node, True))
            for child in children(node):
                if sizes.get(id(child), 0) is None:
                    what = "an alias inside its own anchor"
                    raise rendered.error(child, what, "remove the alias")
                waiting.append((child, False))


def children(node: Node) -> list[Node]:
    """The direct children of a node."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


@dataclass(frozen=True, slots=True)
class Tag:
    """What a node is: ``kind`` is scalar, dict, list, tuple, var, target, or a kind of call."""

    kind: str
    name: str = ""
    """The name of what is called."""


def read_tag(node: Node) -> Tag:
    """The tag of a node; for an unknown one, an `InvalidOption` that suggests the nearest.

    >>> read_tag(yaml.compose("!partial:quire:block_tokenize_fn@label {}"))
    Tag(kind='partial', name='quire:block_tokenize_fn')
    """
    if node.tag in _SCALARS and isinstance(node, yaml.ScalarNode):
        return Tag("scalar")
    if node.tag in _CONTAINERS:
        return Tag(_CONTAINERS[node.tag])
    matched = _TAG.fullmatch(node.tag)
    kind = _ALIASES.get(matched[1], matched[1]) if matched else ""
    name = (matched[2] or "").rstrip(":") if matched else ""
    if kind in CALLS:
        return _call_tag(kind, name)
    if kind not in _KINDS or name:
        shown = node.tag.replace(PLAIN, "!!")
        raise unknown_name("tag", shown, [f"!{k}" for k in (*CALLS, *_KINDS, *_ALIASES)])
    _require_shape(node, kind)
    return Tag(kind)


def _call_tag(kind: str, name: str) -> Tag:
    if not name:
        raise InvalidOption(f"!{kind} does not name what to call; write !{kind}:module:name")
    require_name(name)
    return Tag(kind, name)


def _require_shape(node: Node, kind: str) -> None:
    wanted = _KINDS[kind]
    is_empty = isinstance(node, yaml.ScalarNode) and not node.value
    if kind in ("dict", "list", "tuple") and is_empty:
        return
    if wanted is not None and not isinstance(node, wanted):
        raise InvalidOption(f"!{kind} needs a {wanted.id}, not a {node.id}")
