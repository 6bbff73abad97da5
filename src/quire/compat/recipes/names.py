"""The names that a recipe may use: a closed table, and what the calling program registers.

A name is looked up here; nothing is imported because a file names it (fault 51).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from quire.errors import InvalidOption, unknown_name

Function = Callable[..., Any]

_ALIASES = {
    "quire.blocks:block_tokenize_fn": (
        "quire:block_tokenize_fn",
        "forgather.ml.datasets:block_tokenize_fn",
        "forgather.ml.datasets.block_tokenizer:block_tokenize_fn",
    ),
    "quire.blocks:Bin": ("quire:Bin", "forgather.ml.datasets.block_tokenizer:Bin"),
    "quire.blocks:Document": ("quire:Document", "forgather.ml.datasets.block_tokenizer:Document"),
    "quire.blocks:pack_sequences_optimized": (
        "forgather.ml.datasets.block_tokenizer:pack_sequences_optimized",
    ),
    "quire.blocks:split_document_optimally": (
        "forgather.ml.datasets.block_tokenizer:split_document_optimally",
    ),
    "quire.collate:DataCollatorForCausalLM": (
        "forgather.ml.data_collator:DataCollatorForCausalLM",
    ),
    "quire.collate:PaddingFreeCollator": (),
    "quire.collate:get_pos_ids_for_packed_sequence": (
        "forgather.ml.data_collator:get_pos_ids_for_packed_sequence",
    ),
    "quire.dataset:pack_dataset": ("quire:pack_dataset",),
    "quire.text:ByteTokenizer": ("quire:ByteTokenizer",),
    "quire.compat.recipes:load_tokenizer": (),
    "quire.compat.recipes:load_pretrained_tokenizer": (
        "transformers:AutoTokenizer.from_pretrained",
    ),
    "quire.compat.recipes:load_dataset": ("datasets:load_dataset",),
    "quire.compat.recipes:preprocess_dataset": ("forgather.ml.datasets:preprocess_dataset",),
    "quire.compat.recipes:finish_collator": (),
}
"""Where each callable is defined, and the other names that recipes may use for it."""

_TABLE = {name: own for own, others in _ALIASES.items() for name in (own, *others)}
_MODULES = {"quire.compat.recipes": "quire.compat.recipes.loaders"}
"""Where the callables of this package are defined; they take a `FileAccess` first."""
_registered: dict[str, Function] = {}


def register_name(name: str, function: Function) -> None:
    """Let recipes use a callable of the calling program under this name.

    >>> register_name("examples:double", lambda number: 2 * number)
    >>> resolve("examples:double")(21)
    42
    """
    if not callable(function):
        raise InvalidOption(f"{name!r} is registered for {function!r}, which is not callable")
    if not isinstance(name, str) or not name or not set(name) <= _LETTERS:
        raise InvalidOption(
            f"the name {name!r} cannot be used in a tag; use letters, digits, '_', '.' and ':', "
            "such as 'my_project:my_function'"
        )
    if name in _TABLE:
        raise InvalidOption(f"the name {name!r} is quire's own; choose another")
    if _registered.setdefault(name, function) is not function:
        raise InvalidOption(f"the name {name!r} is already registered for another callable")


_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:")


def known_names() -> list[str]:
    """Every name that a recipe may use."""
    return sorted({*_TABLE, *_registered})


def require_name(name: str) -> None:
    """Raise unless a recipe may use this name."""
    if name not in _TABLE and name not in _registered:
        raise unknown_name("name", name, known_names())


def resolve(name: str) -> Function:
    """The callable with this name; imports its module, which is always one of quire's."""
    if name in _registered:
        return _registered[name]
    require_name(name)
    module, _, attribute = _TABLE[name].partition(":")
    function: Function = getattr(import_module(_MODULES.get(module, module)), attribute)
    return function


def is_own(name: str) -> bool:
    """Whether the callable is quire's own, and accepts the path of a tokenizer."""
    return name in _TABLE


def needs_file_access(name: str) -> bool:
    """Whether the callable reads files, and so takes a `FileAccess` first."""
    return _TABLE.get(name, "").startswith("quire.compat.recipes:")
