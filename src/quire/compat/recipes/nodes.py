"""YAML text to a graph of nodes: anchors shared, nothing built, nothing without end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from quire.compat.recipes.problems import problem
from quire.compat.recipes.rendering import Rendered

MAX_DEPTH = 40
MAX_NODES = 20_000
"""Counted with every alias written out, so that a few lines cannot stand for millions."""
_PLAIN = "tag:yaml.org,2002:"
_WITHOUT = {_PLAIN + "timestamp", _PLAIN + "value"}


def compose(rendered: Rendered) -> dict[str, Any]:
    """The node of every key at the top; hidden ones (``.define``) are numbered."""
    try:
        root = _Loader(rendered.text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise _yaml_problem(error, rendered) from None
    except yaml.YAMLError as error:
        raise problem(rendered.place(0), f"not YAML: {error}", "take the character out") from None
    if root is None:
        return {}
    _require_finite(root, rendered)
    if not isinstance(root, yaml.MappingNode) or root.tag != _PLAIN + "map":
        raise problem(
            rendered.place(root.start_mark.line),
            "a recipe maps names to targets, which this does not",
            "begin with a name and a colon, such as 'tokenizer: …'",
        )
    return dict(_named(root, rendered))


def _named(root: Any, rendered: Rendered) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a node
    for number, (key, value) in enumerate(root.value):
        if not isinstance(key, yaml.ScalarNode):
            raise problem(rendered.place(key.start_mark.line), "a target without a name", "name it")
        if key.tag == _PLAIN + "merge":
            place = rendered.place(key.start_mark.line)
            raise problem(place, "<< at the top, where targets are named", "merge inside a target")
        hidden = key.value.startswith(".")
        yield (f"{key.value}#{number}" if hidden else key.value), value


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Composes nodes to a limited depth; dates stay text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _WITHOUT]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0
    count = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401
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


def _yaml_problem(error: yaml.MarkedYAMLError, rendered: Rendered) -> Exception:
    mark = error.problem_mark or error.context_mark
    place = rendered.place(mark.line if mark else 0)
    what = ", ".join(part for part in (error.context, error.problem) if part)
    if "undefined alias" in what:
        name = what.rpartition(" ")[2].strip("'")
        return problem(
            place, f"*{name} has no anchor before it", f"define &{name} in a section above"
        )
    if "more than" in what:
        return problem(place, what, "a recipe names data and does not hold it")
    return problem(place, f"not YAML: {what}", "mend the line, or quote the value")


def _require_finite(root: Any, rendered: Rendered) -> None:  # noqa: ANN401
    """Raise if a node holds itself, or if the aliases, written out, would be too many."""
    sizes: dict[int, int | None] = {}
    waiting = [(root, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            sizes[id(node)] = 1 + sum(sizes[id(child)] or 0 for child in children(node))
            if (sizes[id(node)] or 0) > MAX_NODES:
                raise problem(
                    rendered.place(node.start_mark.line),
                    f"its aliases stand for more than {MAX_NODES} values",
                    "use fewer aliases inside each other",
                )
        elif id(node) not in sizes:
            sizes[id(node)] = None  # under way
            waiting.append((node, True))
            for child in children(node):
                if sizes.get(id(child), 0) is None:
                    place = rendered.place(child.start_mark.line)
                    raise problem(place, "an alias inside its own anchor", "take the alias out")
                waiting.append((child, False))


def children(node: Any) -> list[Any]:  # noqa: ANN401
    """The nodes right below one."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
