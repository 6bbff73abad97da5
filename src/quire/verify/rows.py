"""Rows become batches here by the collator's rules, without a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quire.collate import DataCollatorForCausalLM
from quire.masks.dense import Windows


class NoSpecialTokens:
    """A tokenizer without special tokens: rows bring their boundaries, and padding is 0."""

    pad_token_id: int | None = None
    eos_token_id: int | None = None
    bos_token_id: int | None = None


def collate(
    rows: Sequence[Mapping[str, object]],
    attention: str | None,
    windows: Windows = None,
    mask_dtype: str = "float32",
) -> dict[str, Any]:
    """The batch of torch tensors that `DataCollatorForCausalLM` makes of these rows."""
    collator = DataCollatorForCausalLM(
        NoSpecialTokens(), attention=attention, windows=windows, mask_dtype=mask_dtype
    )
    return dict(collator(rows))
