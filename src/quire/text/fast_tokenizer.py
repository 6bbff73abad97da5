"""A tokenizer whose texts are encoded by `fastokens`, with the ids of `tokenizers`.

`fastokens` gives the ids of byte-pair tokenizers many times faster. It is used only after both
gave the same ids for hostile texts and for the first documents; while it encodes, a sample of the
documents is encoded by both, and any difference is an error.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, QuireError
from quire.options.names import option, setting
from quire.text.encoded import Encoded
from quire.text.hostile_texts import hostile_texts
from quire.text.patterns import doubtful_part, hazards_of, patterns_of
from quire.text.token_bytes import TokenBytes
from quire.text.tokenizer import Tokenizer

ENOUGH = 5_000_000
"""With fewer bytes of text it is not worth the time to load and check the fast engine."""
_FIRST = 100_000
"""Characters of the first documents that both engines encode."""
_SHARE = 1000
"""One character in this many is encoded by both engines."""
_LEAST = 32
"""Characters that are compared in every batch, however small."""
_SHORT = 200
"""Characters of the hostile texts on which the places of tokens are compared."""
_SUPPORTED = "0.3."
"""Versions of fastokens whose behaviour is known; others are not used."""


class TokenizerMismatch(QuireError):
    """The fast engine gave other ids than `tokenizers`; nothing that it encoded is committed."""

    def __init__(self, message: str, document: int = 0) -> None:
        super().__init__(message)
        self.document = document
        """The number of the document in its batch."""

    def __reduce__(self) -> tuple[type[TokenizerMismatch], tuple[str, int]]:
        return TokenizerMismatch, (str(self), self.document)


class BackedTokenizer(Tokenizer, Protocol):
    """A tokenizer that encodes with a backend of the `tokenizers` package."""

    backend: Any
    adds_bos: bool

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens."""


@dataclass
class FastTokenizer:
    """A tokenizer whose texts are encoded by `fastokens`, once both engines agreed."""

    reference: BackedTokenizer
    """Its ids are the right ones."""
    required: bool = False
    """Raise instead of falling back to the reference."""
    compared: dict[str, int] = field(default_factory=lambda: {"documents": 0, "characters": 0})
    """What was encoded by both engines, with equal ids."""
    _fast: Any = field(default=None, repr=False, compare=False)
    """The engine, if it is loaded."""
    _is_rejected: bool = False
    _is_tried: bool = False
    """Whether the engine has encoded a document."""
    _hazards: str = ""
    """Documents that hold one of these characters are encoded by the reference."""
    _num_characters: int = 0
    """Characters encoded so far."""
    _num_suspect: int = 0
    """Those in documents that were compared because of their size in bytes."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The engine cannot be pickled: a worker loads its own. It has been compared here.
        state = (self._is_rejected, self.is_fast, self._is_tried)
        return _unpickled, (self.reference, self.required, *state)

    @property
    def is_fast(self) -> bool:
        """Whether the fast engine is in use."""
        return self._fast is not None

    @property
    def bos_token_id(self) -> int | None:
        """The reference's."""
        return self.reference.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """The reference's."""
        return self.reference.eos_token_id

    @property
    def pad_token_id(self) -> int | None:
        """The reference's."""
        return self.reference.pad_token_id

    @property
    def vocab_size(self) -> int | None:
        """The reference's."""
        return self.reference.vocab_size

    @property
    def adds_bos(self) -> bool:
        """The reference's."""
        return self.reference.adds_bos

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of the tokens."""
        return self.reference.decode(tokens)

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """The tokens of all texts, with no special token added."""
        self._num_characters += (size := sum(map(len, texts)))
        if not self.is_fast and not self._is_rejected and self._num_characters >= ENOUGH:
            self.load()
        if not self.is_fast:
            return self._reference_ids(texts)
        is_first, self._is_tried = not self._is_tried, self._is_tried or size > 0
        encoded = self.encode_unchecked(texts)
        try:
            self._spot_check(texts, encoded, _FIRST if is_first else None)
        except TokenizerMismatch as error:
            if not is_first or self.required:
                raise
            self._reject(str(error))
            return self._reference_ids(texts)
        return encoded

    def load(self, *, compare: bool = True) -> None:
        """Load the fast engine and compare it with the reference, or say why it is not used."""
        if self.is_fast or self._is_rejected:
            return
        backend = self.reference.backend
        try:
            problem = _unsupported(backend)
            if problem is None:
                # Other threads may be encoding: they see the engine once it is compared.
                tried = FastTokenizer(self.reference, _hazards=hazards_of(patterns_of(backend)))
                tried._fast = _load(backend)
                if compare:
                    tried._compare(_hostile_texts(backend))
                self._hazards = tried._hazards
                self._fast = tried._fast
        except TokenizerMismatch as error:
            problem = str(error)
        except BaseException as error:  # the engine raises ValueError, and may raise others
            if not is_failure(error):
                raise
            problem = f"fastokens cannot load it: {error}"
        if problem is not None:
            self._reject(problem)

    def _reject(self, problem: str) -> None:
        self._fast = None
        if self.required:
            raise InvalidOption(
                f"{option('tokenizer_engine')} is 'fast' but it cannot be used: {problem}; use "
                f"{setting('tokenizer_engine', 'auto')}"
            )
        if self._is_rejected:  # by another thread
            return
        self._is_rejected = True
        warnings.warn(
            f"texts are encoded by tokenizers, which is slower than the fast engine: {problem}",
            stacklevel=2,
        )

    def encode_unchecked(self, texts: Sequence[str]) -> Encoded:
        """The ids of the fast engine; documents that it cannot encode are left to the reference."""
        if not self._hazards:
            return self._fast_or_reference(texts)
        runs = [
            self._reference_ids(list(run)) if hazardous else self._fast_or_reference(list(run))
            for hazardous, run in itertools.groupby(texts, self._is_hazardous)
        ]
        return runs[0] if len(runs) == 1 else Encoded.joined(runs)

    def _is_hazardous(self, text: str) -> bool:
        return not text.isascii() and any(hazard in text for hazard in self._hazards)

    def _fast_or_reference(self, texts: Sequence[str]) -> Encoded:
        try:
            return self._fast_ids(texts)
        except BaseException as error:  # a limit of its patterns; it does not say for which text
            if not is_failure(error):
                raise
            if len(texts) == 1:
                return self._reference_ids(texts)
        half = len(texts) // 2
        return Encoded.joined(
            [self._fast_or_reference(part) for part in (texts[:half], texts[half:])]
        )

    def _fast_ids(self, texts: Sequence[str]) -> Encoded:
        split = self.reference.backend.encode_special_tokens
        ids, offsets = self._fast.encode_batch_flat(list(texts), split_special_tokens=split)
        ends = np.frombuffer(offsets, "<u8").astype(np.int64)
        return Encoded(
            tokens=np.frombuffer(ids, "<i4").astype(np.int32, copy=False),
            lengths=np.diff(ends),
            from_vocabulary=True,
        )

    def _reference_ids(self, texts: Sequence[str]) -> Encoded:
        return self.reference.encode_batch(texts)

    def _compare(self, texts: Sequence[str]) -> None:
        ours, theirs = self.encode_unchecked(texts), self._reference_ids(texts)
        for number in range(len(texts)):
            _require_equal(number, ours.of(number), theirs.of(number))

    def _spot_check(self, texts: Sequence[str], encoded: Encoded, budget: int | None) -> None:
        """Encode some documents by both engines."""
        suspects = ((number, 0, len(texts[number])) for number in self._suspects(texts, encoded))
        for number, start, stop in itertools.chain(suspects, self.sample(texts, budget)):
            text = texts[number]
            if stop - start == len(text):
                ours = encoded.of(number)
            else:
                text = text[start:stop]
                ours = self.encode_unchecked([text]).tokens
            _require_equal(number, ours, self._reference_ids([text]).tokens)
            self.compared["documents"] += 1
            self.compared["characters"] += len(text)

    def _suspects(self, texts: Sequence[str], encoded: Encoded) -> Iterator[int]:
        """Documents with more or fewer bytes than their tokens: normalized ones, or wrong ids.

        Where all are, such as with a space before each, only a share of them is compared.
        """
        for number in self._spelling.misfits(texts, encoded) if self._spelling else ():
            if self._num_suspect > _FIRST + self._num_characters // _SHARE:
                return
            self._num_suspect += len(texts[number])
            yield number

    def sample(
        self, texts: Sequence[str], budget: int | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """What to compare: (number, start, stop) of documents, until there are enough characters.

        Which ones depends only on what was encoded before.
        """
        left = max(_LEAST, sum(map(len, texts)) // _SHARE) if budget is None else budget
        count = len(texts)
        first = self._num_characters % count if count else 0
        for number in itertools.chain(range(first, count), range(first)):
            if size := len(texts[number]):
                start = self._num_characters % (size - left + 1) if size > left else 0
                yield number, start, start + min(size, left)
                left -= min(size, left)
                if left < _LEAST:
                    break

    @cached_property
    def token_bytes(self) -> TokenBytes | None:
        """Tells where tokens are in a text; None if that differs from what the reference says."""
        backend = self.reference.backend
        found = self._spelling
        some = (text for text in _hostile_texts(backend) if len(text) < _SHORT)
        return found if found and found.agree(backend, some) else None

    @cached_property
    def _spelling(self) -> TokenBytes | None:
        return TokenBytes.of(self.reference.backend)


def _unpickled(
    reference: BackedTokenizer, required: bool, is_rejected: bool, is_fast: bool, is_tried: bool
) -> FastTokenizer:
    tokenizer = FastTokenizer(
        reference, required=required, _is_rejected=is_rejected, _is_tried=is_tried
    )
    if is_fast:
        tokenizer.load(compare=False)
    return tokenizer


def is_failure(error: BaseException) -> bool:
    """Whether an engine failed: a panic of Rust is not an Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _require_equal(number: int, ours: npt.NDArray[np.int32], theirs: npt.NDArray[np.int32]) -> None:
    if not np.array_equal(ours, theirs):
        raise mismatch(number, ours, theirs)


def mismatch(
    number: int, ours: npt.NDArray[np.int32], theirs: npt.NDArray[np.int32]
) -> TokenizerMismatch:
    """The error for a document with other ids."""
    shorter = min(len(ours), len(theirs))
    at = int(np.argmax(np.append(ours[:shorter] != theirs[:shorter], True)))
    versions = f"fastokens {engine_version()} and tokenizers {reference_version()}"
    return TokenizerMismatch(
        f"{versions} give different ids for document {number} from token {at} on; use "
        f"{setting('tokenizer_engine', 'tokenizers')}, and report this",
        number,
    )


@cache
def engine_version() -> str | None:
    """The version of fastokens; None if it is not installed."""
    try:
        return version("fastokens")
    except PackageNotFoundError:
        return None


def reference_version() -> str:
    """The version of tokenizers."""
    import tokenizers

    return str(tokenizers.__version__)


def _unsupported(backend: Any) -> str | None:  # noqa: ANN401, PLR0911 - one per reason
    """Why the fast engine is not used for this tokenizer, if it is known to differ."""
    model, found = backend.model, engine_version()
    if found is None:
        return "fastokens is not installed; pip install fastokens"
    if not found.startswith(_SUPPORTED):
        return f"fastokens {found} is installed, but {_SUPPORTED}x is needed"
    if type(model).__name__ != "BPE":
        return f"its model is {type(model).__name__}, and the fast engine supports only BPE"
    if model.dropout:
        return f"its model drops merges at random (dropout {model.dropout})"
    if not _knows_everything(backend):
        return "its model leaves out characters that it does not know"
    if part := next(filter(None, map(doubtful_part, patterns_of(backend))), None):
        return f"its pattern has {part}, which fastokens may match differently"
    added = backend.get_added_tokens_decoder()
    for token in added.values():
        if token.lstrip or token.rstrip or token.single_word:
            return f"its added token {token.content!r} has lstrip, rstrip or single_word"
    size = backend.get_vocab_size(with_added_tokens=False)
    beyond = sorted(number for number in added if number >= size)
    inside = [number for number in added if number < size]
    if beyond != list(range(size, size + len(beyond))):
        return "the ids of its added tokens have gaps"
    if any(model.id_to_token(number) != added[number].content for number in inside):
        return "the ids of its added tokens clash with its vocabulary"
    return None


def _knows_everything(backend: Any) -> bool:  # noqa: ANN401
    """Whether every character has an id: the libraries differ in what they merge around a gap."""
    model, unknown = backend.model, backend.model.unk_token
    if unknown is not None and model.token_to_id(unknown) is not None:
        return True
    alphabets = []
    if model.byte_fallback:
        alphabets.append([f"<0x{byte:02X}>" for byte in range(256)])
    if "ByteLevel(" in f"{backend.normalizer!r} {backend.pre_tokenizer!r}":
        alphabets.append(_byte_alphabet())
    return any(
        all(model.token_to_id(token) is not None for token in alphabet) for alphabet in alphabets
    )


def _byte_alphabet() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return ByteLevel.alphabet()


def _hostile_texts(backend: Any) -> list[str]:  # noqa: ANN401
    return hostile_texts(token.content for token in backend.get_added_tokens_decoder().values())


def _load(backend: Any) -> Any:  # noqa: ANN401
    import fastokens

    return fastokens.Tokenizer.from_json_str(backend.to_str())
