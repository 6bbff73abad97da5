"""Packing a corpus on disk into a dataset on disk, partition by partition, resumably."""

from quire.corpus.engines.ray import RayEngine
from quire.corpus.index import replan
from quire.corpus.manifest import PackResult
from quire.corpus.options import CorpusOptions
from quire.corpus.pack import pack_corpus

__all__ = ["CorpusOptions", "PackResult", "RayEngine", "pack_corpus", "replan"]
