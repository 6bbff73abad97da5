"""The names that a recipe may use: a closed table, and what the calling program adds in code.

A name is looked up here and never imported because a file says so (fault 51).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from quire.errors import InvalidOption, unknown_name

Function = Callable[..., Any]

_PLACES = {
    "quire.blocks:block_tokenize_fn": (
        "quire:block_tokenize_fn",
        "forgather.ml.datasets:block_tokenize_fn",
        "forgather.ml.datasets.block_tokenizer:block_tokenize_fn",
    ),
    "quire.bins:Bin": ("quire:Bin", "forgather.ml.datasets.block_tokenizer:Bin"),
    "quire.bins:Document": ("quire:Document", "forgather.ml.datasets.block_tokenizer:Document"),
    "quire.bins:pack_sequences_optimized": (
        "quire.blocks:pack_sequences_optimized",
        "forgather.ml.datasets.block_tokenizer:pack_sequences_optimized",
    ),
    "quire.bins:split_document_optimally": (
        "quire.blocks:split_document_optimally",
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
"""Where each callable of quire stands, and the other names that it answers to."""

_TABLE = {name: place for place, others in _PLACES.items() for name in (place, *others)}
_MODULES = {"quire.compat.recipes": "quire.compat.recipes.loading"}
"""Where the parts of this package stand; they take the recipe's reach as their first argument."""
_registered: dict[str, Function] = {}


def register_name(name: str, function: Function) -> None:
    """Let recipes use a callable of the calling program under this name.

    >>> register_name("examples:double", lambda number: 2 * number)
    >>> resolve("examples:double")(21)
    42
    """
    if not callable(function):
        raise InvalidOption(f"{name!r} is registered for {function!r}, which cannot be called")
    if not isinstance(name, str) or not name or not set(name) <= _LETTERS:
        raise InvalidOption(
            f"the name {name!r} cannot stand in a tag; use letters, digits, '_', '.' and ':', such "
            "as 'my_project:my_function'"
        )
    if name in _TABLE:
        raise InvalidOption(f"the name {name!r} is quire's own; choose another")
    if _registered.setdefault(name, function) is not function:
        raise InvalidOption(f"the name {name!r} is registered for another callable already")


_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:")


def known_names() -> list[str]:
    """Every name that a recipe may use now."""
    return sorted({*_TABLE, *_registered})


def require_name(name: str) -> None:
    """Raise unless a recipe may use this name."""
    if name not in _TABLE and name not in _registered:
        raise unknown_name("name", name, known_names())


def resolve(name: str) -> Function:
    """The callable behind a name; its module is imported now, and is always one of quire's."""
    if name in _registered:
        return _registered[name]
    require_name(name)
    module, _, attribute = _TABLE[name].partition(":")
    function: Function = getattr(import_module(_MODULES.get(module, module)), attribute)
    return function


def is_own(name: str) -> bool:
    """Whether the callable is quire's, and takes a tokenizer's path for the tokenizer."""
    return name in _TABLE


def needs_reach(name: str) -> bool:
    """Whether the callable reads files, and so has to ask which it may read."""
    return _TABLE.get(name, "").startswith("quire.compat.recipes:")
