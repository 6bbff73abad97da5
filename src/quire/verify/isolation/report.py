"""The options and the report of the isolation check; nothing here needs torch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Literal

Verdict = Literal["isolated", "noise", "leak", "altered", "disagreement", "unproven"]
Kind = Literal["leak", "noise", "unproven"]
Dependence = Literal["shown", "none", "untestable"]

MEANINGS: dict[Verdict, str] = {
    "isolated": "no document changes another, bit for bit",
    "noise": "differences within rounding and no gradient: kernel noise, not a leak",
    "leak": "documents see each other",
    "altered": "no document sees another, but some have other logits in the row than alone",
    "disagreement": "the parts of the batch contradict each other about where documents start",
    "unproven": "differences within rounding, and no gradients to tell noise from a leak",
}
UNPROVEN: dict[Dependence, str] = {
    "none": "no logits were seen to depend on earlier tokens, so nothing is proven",
    "untestable": "no document has two tokens that could affect each other, so nothing is proven "
    "by this batch",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class IsolationOptions:
    """How the check is made."""

    tolerance: float | None = None
    """Differences up to this fraction of the largest logit may be rounding. None: 32 times the
    dtype's epsilon, at least float32's, because models compute softmax and norms in float32
    whatever their dtype is."""
    gradients: bool = True
    """Whether gradients are checked: one backward pass for each document."""
    keep_token_ids: tuple[int, ...] = ()
    """Ids that are neither changed nor used as a change, such as image placeholders."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Document:
    """A fragment of a row: number 1..k, or 0 for a run of padding."""

    row: int
    number: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Row and number."""
        return f"row {self.row} " + (f"document {self.number}" if self.number else "padding")

    def __str__(self) -> str:
        """Row, number and tokens, as in messages."""
        return f"{self.name} (tokens {self.start}..{self.stop - 1})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One document that is not independent of another."""

    source: Document
    """The document whose tokens were changed."""
    target: Document
    """The document whose logits should not have changed."""
    difference: float
    """The largest change of the target's logits."""
    gradient: float | None
    """The largest gradient of the target's logits at the source's embeddings, if taken."""
    kind: Kind
    float32_difference: float | None = None
    """The same change with the weights in float32, where rounding is too small to hide a leak;
    measured for 16-bit models if no gradient decides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Altered:
    """A document with other logits in the row than alone.

    Compared in evaluation mode, and in float32 if the model has 16 bits.
    """

    document: Document
    difference: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """A part of the batch that contradicts the boundaries of the documents."""

    form: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Why documents leak, and how to fix it."""

    cause: str
    remedy: str
    confirmed: bool = False
    """Whether the remedy was tried on this model and this batch, and worked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IsolationReport:
    """The result of `check_isolation`."""

    verdict: Verdict
    num_documents: int
    num_pairs: int
    """Ordered pairs of documents (padding included as a source) that were compared."""
    dtype: str
    tolerance: float
    """Differences of logits up to this may be rounding."""
    pairs: tuple[Pair, ...]
    altered: tuple[Altered, ...]
    disagreements: tuple[Disagreement, ...]
    skipped: dict[str, str]
    """Checks that could not be made, and why."""
    diagnosis: Diagnosis | None
    dependence: Dependence = "shown"
    """Whether a later token was seen to depend on an earlier one of its own document; without that,
    no leak could have been seen. `untestable` if no document has a token after one that may
    change."""
    training: bool = False
    """Whether the model was checked in training mode."""
    num_logits: int | None = None
    """Logits of each token that were compared: a sample of a large vocabulary."""

    @property
    def isolated(self) -> bool:
        """Whether training with this call keeps documents apart."""
        return self.verdict in ("isolated", "noise")

    @property
    def meaning(self) -> str:
        """The verdict as a sentence."""
        if self.verdict == "unproven":
            return UNPROVEN.get(self.dependence, MEANINGS[self.verdict])
        return MEANINGS[self.verdict]

    def to_json(self) -> str:
        """The whole report; numbers that JSON does not have are written as text."""
        fields = {"isolated": self.isolated, "meaning": self.meaning, **asdict(self)}
        return json.dumps(_finite(fields), indent=2)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
