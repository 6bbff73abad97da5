"""Documents that are tokens already: a corpus of another system as a source, read in place."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import PurePosixPath

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.formats.corpora import is_corpus, open_corpus
from quire.formats.files import find_paths
from quire.formats.record_kinds import TOKENS_KIND
from quire.formats.token_corpus import TokenCorpus
from quire.formats.token_files import TOKENS
from quire.options.names import setting
from quire.printable import counted
from quire.storage import AnyPath, as_path
from quire.stream.encode import Coder, EncodedTexts, as_documents
from quire.stream.options import StreamOptions, StreamSource
from quire.stream.reading import Reading
from quire.stream.records import Record
from quire.stream.state import Tokens, read_count

_MASK = "loss_mask"
_STRETCHES = 256
_FEWEST, _MOST = 64, 1 << 16
_TOKENS_AT_ONCE = 1 << 20
_NONE = np.zeros(0, np.int32)


def reads_corpus(source: StreamSource) -> bool:
    """Whether the files are a tokenized corpus: a format says so, or the content of the first.

    A folder in which there is text as well is ambiguous, and only text beside a damaged corpus.
    """
    if source.record_kind not in (None, TOKENS_KIND):
        return False
    if source.format is not None:
        return True
    if not source.files or source.pattern is not None:
        return False
    named = source.files[0]
    try:
        found = is_corpus(named)
    except CorruptFile:
        if _texts_in(named):
            return False
        raise
    if found and source.record_kind is None and (texts := _texts_in(named)):
        raise InvalidOption(
            f"{named} holds a tokenized corpus and {counted(len(texts), 'file')} of text "
            f"({', '.join(texts[:3])}), so the choice is ambiguous; name the files of one of them, "
            f"such as '{named}/*{PurePosixPath(texts[0]).suffix}', or use "
            f"{setting('record_kind', TOKENS_KIND)} for the corpus"
        )
    return found


def _texts_in(named: str) -> list[str]:
    """The files of a folder that would be read as text without the corpus in it."""
    if not as_path(named).is_dir():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that are not read
        try:
            found = find_paths([named])
        except InvalidOption:  # there are none
            return []
    return [file.name for file in found if not _is_of_corpus(file.path)]


def _is_of_corpus(path: AnyPath) -> bool:
    try:
        return is_corpus(path)
    except CorruptFile:
        return True


class CorpusShards:
    """A shard is a stretch of consecutive documents of one file."""

    def __init__(self, source: StreamSource) -> None:
        self._corpus = corpus = open_corpus(source.files, source.format)
        if others := set(corpus.columns) - {TOKENS, _MASK}:
            raise InvalidOption(
                f"{', '.join(source.files)} has the columns {', '.join(sorted(others))}, which "
                f"streams do not give; they read {TOKENS} and {_MASK}: pack it with quire pack "
                "--index-only, whose rows have all columns"
            )
        if left := corpus.ledger.tokens.num_dropped:
            warnings.warn(
                f"{', '.join(source.files)} holds {counted(left, 'token')} that belong to no "
                "document and are left out of every epoch; tail=keep in format makes those after "
                "the last end a document",
                stacklevel=2,
            )
        self.reading = Reading(options=replace(source, record_kind="tokens"), is_tokens=True)
        size = min(max(-(-len(corpus) // _STRETCHES), _FEWEST), _MOST)
        self._stretches = [
            (TokenCorpus(corpus.format, [file]), documents)
            for file in corpus.files
            for documents in _even(len(file), size)
        ] or [(corpus, range(0))]

    @cached_property  # messages name shards, too, and the fingerprint reads every file
    def names(self) -> list[str]:
        """Places in files, with a fingerprint of the corpus: one that changed is another one."""
        fingerprint = self._corpus.fingerprint()[:16]
        return [f"{_name(*stretch)} of {fingerprint}" for stretch in self._stretches]

    def open(self, number: int, cursor: object | None) -> Stretch:
        """The stretch from its start, or from a number of documents on."""
        corpus, documents = self._stretches[number]
        what = f"the cursor in {_name(corpus, documents)}"
        read = 0 if cursor is None else read_count(what, cursor, most=len(documents))
        return Stretch(corpus, documents, read)


def _even(count: int, most: int) -> list[range]:
    """Stretches of up to ``most`` documents that differ by one at most, as streams share them.

    >>> _even(7, 3)
    [range(0, 2), range(2, 4), range(4, 7)]
    """
    parts = -(-count // most)
    return [range(count * n // parts, count * (n + 1) // parts) for n in range(parts)]


def _name(corpus: TokenCorpus, documents: range) -> str:
    return f"{corpus.files[0].path.name}[{documents.start}:{documents.stop}]"


class Stretch:
    """Documents one after another."""

    def __init__(self, corpus: TokenCorpus, documents: range, num_read: int) -> None:
        self._corpus, self._documents, self._num_read = corpus, documents, num_read

    def next(self) -> Record:
        """The next document."""
        return self.read(1)[0]

    def read(self, most: int) -> list[Record]:
        """The next documents, at least one; tokens without loss are marked."""
        asked = self._documents[self._num_read : self._num_read + most]
        if not asked:
            raise StopIteration
        file = self._corpus.files[0]
        for column in file.columns.values():
            column.data.require_unchanged()
        lengths = file.lengths[asked.start : asked.stop].astype(np.int64)
        ends = np.cumsum(lengths)
        count = max(1, int(np.searchsorted(ends, _TOKENS_AT_ONCE, side="right")))
        stops, ends = lengths[:count], ends[: count - 1]
        places = np.array(asked[:count]), np.zeros_like(stops), stops
        tokens = self._corpus.gather(TOKENS, *places)
        if _MASK in self._corpus.columns:
            tokens = np.where(self._corpus.gather(_MASK, *places) == 0, ~tokens, tokens)
        self._num_read += len(stops)
        return list(np.split(tokens, ends))

    def cursor(self) -> int:
        """Documents that were read."""
        return self._num_read


@dataclass(frozen=True, kw_only=True)
class TokenCoder:
    """Makes documents of tokens; worker processes receive it."""

    options: StreamOptions

    def __post_init__(self) -> None:
        options = self.options
        if options.truncate_at is not None:
            raise InvalidOption(
                f"{options.name('truncate_at')} cuts text, but the records hold tokens; leave it "
                f"out, or set {options.name('truncate_to')}"
            )

    def open(self) -> Coder:
        """The function that makes documents."""
        return partial(_as_given, options=self.options)


def _as_given(documents: Sequence[Tokens], options: StreamOptions) -> EncodedTexts:
    """Documents as they are; one with an id outside of the vocabulary is a bad record."""
    problems: dict[int, str] = {}
    for number, tokens in enumerate(documents):
        largest = int(np.maximum(tokens, ~tokens).max(initial=0))
        if options.vocab_size is not None and largest >= options.vocab_size:
            problems[number] = (
                f"holds the token {largest}, but the vocabulary has {options.vocab_size} ids; name "
                "the tokenizer that made the corpus"
            )
    lengths = np.array([len(tokens) for tokens in documents], np.int64)
    flat = np.concatenate([*documents, _NONE])
    bad = np.isin(np.arange(len(documents)), list(problems))
    return as_documents(flat, lengths, options, bos=None, problems=problems, silent=bad)
