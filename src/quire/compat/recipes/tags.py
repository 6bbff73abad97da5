"""The tags of recipes: what may stand behind an exclamation mark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml  # type: ignore[import-untyped]

from quire.compat.recipes.names import require_name
from quire.errors import InvalidOption, unknown_name

PLAIN = "tag:yaml.org,2002:"
SCALARS = {PLAIN + kind for kind in ("null", "bool", "int", "float", "str")}
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


@dataclass(frozen=True, slots=True)
class Tag:
    """What a node is: ``kind`` is scalar, dict, list, tuple, var, target, or a kind of call."""

    kind: str
    name: str = ""
    """What is called."""


def read_tag(node: Any) -> Tag:  # noqa: ANN401 - a YAML node
    """The tag of a node, or an `InvalidOption` that names the nearest known one.

    >>> read_tag(yaml.compose("!partial:quire:block_tokenize_fn@label {}"))
    Tag(kind='partial', name='quire:block_tokenize_fn')
    """
    if node.tag in SCALARS and isinstance(node, yaml.ScalarNode):
        return Tag("scalar")
    if node.tag in _CONTAINERS:
        return Tag(_CONTAINERS[node.tag])
    matched = _TAG.fullmatch(node.tag)
    kind = _ALIASES.get(matched[1], matched[1]) if matched else ""
    name = (matched[2] or "").rstrip(":") if matched else ""
    if kind in CALLS:
        return _call(kind, name)
    if kind not in _KINDS or name:
        shown = node.tag.replace(PLAIN, "!!")
        raise unknown_name("tag", shown, [f"!{k}" for k in (*CALLS, *_KINDS, *_ALIASES)])
    _require_shape(node, kind)
    return Tag(kind)


def _call(kind: str, name: str) -> Tag:
    if not name:
        raise InvalidOption(f"!{kind} names nothing to call; write !{kind}:module:name")
    require_name(name)
    return Tag(kind, name)


def _require_shape(node: Any, kind: str) -> None:  # noqa: ANN401
    wanted = _KINDS[kind]
    is_empty = isinstance(node, yaml.ScalarNode) and not node.value
    if kind in ("dict", "list", "tuple") and is_empty:
        return
    if wanted is not None and not isinstance(node, wanted):
        raise InvalidOption(f"!{kind} needs a {wanted.id}, not a {node.id}")
