"""Read the options of any dataclass from a YAML file or a dict."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]

from quire.errors import InvalidOption, shown
from quire.options.nested import build_options

Options = TypeVar("Options")


def load_options(
    kind: type[Options],
    config: str | os.PathLike[str] | Mapping[str, Any],
    overrides: Sequence[str] = (),
) -> Options:
    """The options in a YAML file or a dict, with overrides such as ``data.seed=1`` applied.

    A dataclass with ``ignores_unknown = True`` (a `ClassVar`) is a section that other programs also
    read: keys that are not its options are ignored, with one warning that names them all, unless
    one is close to an option's name.
    """
    plain = dict(config) if isinstance(config, Mapping) else read_yaml(config)
    for override in overrides:
        plain = _overridden(plain, override)
    ignored: list[str] = []
    options = build_options(kind, plain, ignored=ignored)
    if ignored:
        warnings.warn(f"the config has keys that are ignored: {', '.join(ignored)}", stacklevel=2)
    return options


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The mapping in a YAML file: only plain values, no tags, no repeated keys."""
    file = Path(path)
    if not file.is_file():
        raise InvalidOption(f"there is no config file {file}; give the path of a YAML file")
    plain = _parsed(file.read_bytes(), f"{file} is not plain YAML")
    if plain is None:
        return {}
    if not isinstance(plain, dict):
        raise InvalidOption(f"{file} holds {type(plain).__name__} but must map names to values")
    return plain


_MAX_DEPTH = 100
_MERGE = "tag:yaml.org,2002:merge"


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Safe YAML in which a repeated key is an error."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - yaml's own nodes
        """The next node; PyYAML itself takes seconds to notice that the nesting is too deep."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"nested more than {_MAX_DEPTH} deep", self.peek_event().start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _parsed(text: str | bytes, problem: str) -> Any:  # noqa: ANN401 - whatever the text says
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, *_WRONG_VALUES) as error:
        raise InvalidOption(f"{problem}: {error}") from error


# What PyYAML raises for a value that does not fit its tag: 2024-13-45, !!bool x, !!int "".
_WRONG_VALUES = (ValueError, KeyError, IndexError, AttributeError, TypeError)


def _mapping_without_repeats(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:
            raise yaml.constructor.ConstructorError(
                None, None, "merging with << is not supported; write the values out",
                key_node.start_mark,
            )  # fmt: skip
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, list | dict):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is a name, not a collection", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} appears twice", key_node.start_mark
            )
        seen.add(key)
    mapping: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    return mapping


_StrictLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats
)


def _overridden(plain: Mapping[str, Any], override: str) -> dict[str, Any]:
    name, equals, text = override.partition("=")
    if not equals or not name.strip():
        raise InvalidOption(f"override {override!r} must be name=value, such as data.seed=1")
    value = _parsed(text, f"override {shown(override)}: the value is not plain YAML")
    return _with_value(plain, name.strip().split("."), value, override)


def _with_value(
    plain: Mapping[str, Any], names: Sequence[str], value: object, override: str
) -> dict[str, Any]:
    changed = dict(plain)
    if len(names) == 1:
        changed[names[0]] = value
        return changed
    section = changed.get(names[0], {})
    if not isinstance(section, Mapping):
        raise InvalidOption(f"override {override!r}: {names[0]} is {shown(section)}, not a section")
    changed[names[0]] = _with_value(section, names[1:], value, override)
    return changed
