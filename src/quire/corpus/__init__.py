"""Packing a corpus on disk into a dataset on disk, partition by partition, resumably."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.corpus.engines.ray import RayEngine
    from quire.corpus.index import replan
    from quire.corpus.manifest import PackResult
    from quire.corpus.options import CorpusOptions
    from quire.corpus.pack import pack_corpus

__all__ = ["CorpusOptions", "PackResult", "RayEngine", "pack_corpus", "replan"]

_LAZY = {
    "CorpusOptions": "quire.corpus.options",
    "PackResult": "quire.corpus.manifest",
    "RayEngine": "quire.corpus.engines.ray",
    "pack_corpus": "quire.corpus.pack",
    "replan": "quire.corpus.index",
}
"""The module of each name: importing the options must not load the packing code."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'quire.corpus' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
