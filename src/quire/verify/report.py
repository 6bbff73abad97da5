"""What the isolation check found, as plain values that go into JSON as they are."""

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
    "altered": "no document sees another, but in the row they are not what they are alone",
    "disagreement": "the parts of the batch contradict each other about where documents start",
    "unproven": "differences within rounding, and no gradients to tell noise from a leak",
}
UNPROVEN: dict[Dependence, str] = {
    "none": "no token was seen to notice any earlier one, so nothing is proven",
    "untestable": "no document has two tokens that could notice each other, so nothing is proven "
    "by this batch",
}


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Document:
    """A fragment of a row: number 1..k, or 0 for a stretch of padding."""

    row: int
    number: int
    start: int
    stop: int

    def __str__(self) -> str:
        """Row, number and tokens, as messages name them."""
        name = f"document {self.number}" if self.number else "padding"
        return f"row {self.row} {name} (tokens {self.start}..{self.stop - 1})"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One document that another one is not independent of."""

    source: Document
    """The document whose tokens were changed."""
    target: Document
    """The document whose logits should not have noticed."""
    difference: float
    """The largest change of the target's logits."""
    gradient: float | None
    """The largest gradient of the target's logits at the source's embeddings, if taken."""
    kind: Kind
    float32_difference: float | None = None
    """The same change with the weights in float32, where rounding is too small to hide a leak;
    measured for models of 16 bits where no gradient decides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Altered:
    """A document whose logits in the row are not those that it has alone.

    Compared in evaluation mode, and in float32 if the model has 16 bits.
    """

    document: Document
    difference: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Disagreement:
    """A part of the batch that tells of other documents than the boundaries do."""

    form: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Why documents leak, and what to do about it."""

    cause: str
    remedy: str
    confirmed: bool
    """Whether the remedy was tried on this model and this batch, and worked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IsolationReport:
    """The answer of `check_isolation`."""

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
    """Whether a later token noticed an earlier one of its own document, without which no call can
    be told from another; `untestable` where no document has a token after one that may change."""
    training: bool = False
    """Whether the model was in training mode, and so was examined in it."""
    num_logits: int | None = None
    """Logits of each token that were compared: a sample of a large vocabulary."""

    @property
    def isolated(self) -> bool:
        """Whether training on this call keeps documents apart."""
        return self.verdict in ("isolated", "noise")

    @property
    def meaning(self) -> str:
        """The verdict as a sentence."""
        if self.verdict == "unproven":
            return UNPROVEN.get(self.dependence, MEANINGS[self.verdict])
        return MEANINGS[self.verdict]

    def to_json(self) -> str:
        """The whole report; numbers that JSON does not know are written as text."""
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
