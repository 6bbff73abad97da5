"""Pack variable-length documents into fixed-length training sequences."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.blocks import Bin, Document, block_tokenize_fn
    from quire.compat.recipes import load_recipe
    from quire.corpus import pack_corpus
    from quire.corpus.index import replan
    from quire.dataset import pack_dataset
    from quire.ledger import Ledger
    from quire.packed import PackedDataset
    from quire.plan import (
        OnlinePacker,
        Plan,
        attention_costs,
        balance,
        lower_bound,
        make_plan,
        register_strategy,
    )
    from quire.step import StepPlan, pack_step
    from quire.text import ByteTokenizer

__version__ = "0.1.0"

_LAZY = {
    "Bin": "quire.blocks",
    "ByteTokenizer": "quire.text",
    "Document": "quire.blocks",
    "Ledger": "quire.ledger",
    "OnlinePacker": "quire.plan",
    "PackedDataset": "quire.packed",
    "Plan": "quire.plan",
    "StepPlan": "quire.step",
    "attention_costs": "quire.plan",
    "balance": "quire.plan",
    "block_tokenize_fn": "quire.blocks",
    "load_recipe": "quire.compat.recipes",
    "lower_bound": "quire.plan",
    "make_plan": "quire.plan",
    "pack_corpus": "quire.corpus",
    "pack_dataset": "quire.dataset",
    "pack_step": "quire.step",
    "register_strategy": "quire.plan",
    "replan": "quire.corpus",
}
"""The module of each public name, imported when the name is first used."""

_MODULES = {"errors", "ledger", "plan"}
"""Modules that are available after `import quire`; they need nothing besides numpy."""

__all__ = [
    "Bin",
    "ByteTokenizer",
    "Document",
    "Ledger",
    "OnlinePacker",
    "PackedDataset",
    "Plan",
    "StepPlan",
    "attention_costs",
    "balance",
    "block_tokenize_fn",
    "load_recipe",
    "lower_bound",
    "make_plan",
    "pack_corpus",
    "pack_dataset",
    "pack_step",
    "register_strategy",
    "replan",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"quire.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})
