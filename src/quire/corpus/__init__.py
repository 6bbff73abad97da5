"""A corpus on disk to a packed dataset on disk: partition by partition, each committed whole."""

from quire.corpus.engines.ray import RayEngine
from quire.corpus.options import CorpusOptions
from quire.corpus.replan import replan
from quire.corpus.result import PackResult
from quire.corpus.run import pack_corpus

__all__ = ["CorpusOptions", "PackResult", "RayEngine", "pack_corpus", "replan"]
