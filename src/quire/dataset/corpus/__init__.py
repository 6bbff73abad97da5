"""A corpus on disk to a packed dataset on disk: partition by partition, each committed whole."""

from quire.dataset.corpus.options import CorpusOptions
from quire.dataset.corpus.ray_engine import RayEngine
from quire.dataset.corpus.replan import replan
from quire.dataset.corpus.result import PackResult
from quire.dataset.corpus.run import pack_corpus

__all__ = ["CorpusOptions", "PackResult", "RayEngine", "pack_corpus", "replan"]
