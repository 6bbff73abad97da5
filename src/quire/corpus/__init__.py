"""Packing a corpus on disk into a dataset on disk, partition by partition, resumably."""

from quire.corpus.engines.ray import RayEngine
from quire.corpus.options import CorpusOptions
from quire.corpus.pack import PackResult, pack_corpus
from quire.corpus.replan import replan

__all__ = ["CorpusOptions", "PackResult", "RayEngine", "pack_corpus", "replan"]
