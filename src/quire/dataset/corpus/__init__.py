"""A corpus on disk to a packed dataset on disk: partition by partition, each committed whole."""

from quire.dataset.corpus.options import CorpusOptions
from quire.dataset.corpus.run import PackResult, pack_corpus

__all__ = ["CorpusOptions", "PackResult", "pack_corpus"]
