"""What the isolation check can be told; no option here needs torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class IsolationOptions:
    """How the check is made."""

    tolerance: float | None = None
    """Differences up to this part of the largest logit may be rounding. None: 32 times the dtype's
    epsilon, at least float32's, because models compute softmax and norms in float32 whatever their
    dtype is."""
    gradients: bool = True
    """Whether gradients are looked at: one backward pass for each document."""
    keep_token_ids: tuple[int, ...] = ()
    """Ids that are neither changed nor used as a change, such as image placeholders."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOptions:
    """The call that a user makes, as far as it departs from the collator's default."""

    attention: str | None = "transformers"
    """The collator's option of the same name."""
    with_attention_mask: bool = False
    """Whether an `attention_mask` of ones is passed, too."""
    use_cache: bool | None = None
    """None: what the collator emits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeOptions:
    """The rows that a model is tried on."""

    num_rows: int = 2
    documents_per_row: int = 4
    seed: int = 0
