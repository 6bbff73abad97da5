"""Corpora of formats that have no second reader here, read by the format that was planned.

This is the only module of the check of outputs that uses `quire.formats`; the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from quire.formats.corpora import open_corpus
from quire.storage import AnyPath
from quire.verify.output.shards import Ints


def read_packed_corpus(paths: Sequence[AnyPath], form: str) -> tuple[Ints, Mapping[str, int]]:
    """The length of every document, and the tokens that are in none, by reason."""
    corpus = open_corpus(paths, form)
    return corpus.lengths().astype(np.int64), dict(corpus.ledger.tokens.dropped)
