"""Collate packed rows into batches for ``model(**batch)``.

`DataCollatorForCausalLM` stacks rows into `[B, T]`; `PaddingFreeCollator` concatenates them into
`[1, N]`. Both read `input_ids` and, if present, `labels`, `document_starts` (or TRL's
`seq_lengths`, or `position_ids`) and a loss mask. transformers' Trainer drops columns that the
model's signature does not name: set `remove_unused_columns=False`, or `document_starts` is lost.

Vision-language samples have their own collators: `VisionPaddingFreeCollator` concatenates packs,
`VisionPaddedCollator` pads samples, and `VisionCollator` chooses between them.
`PackedVisionCollator` reads the images of rows that `quire pack` wrote.
"""

from quire.collate.causal_lm import DataCollatorForCausalLM
from quire.collate.padding_free import PaddingFreeCollator
from quire.collate.positions import get_pos_ids_for_packed_sequence
from quire.collate.vision import (
    MropeOptions,
    PackedVisionCollator,
    VisionCollator,
    VisionPaddedCollator,
    VisionPaddingFreeCollator,
)

__all__ = [
    "DataCollatorForCausalLM",
    "MropeOptions",
    "PackedVisionCollator",
    "PaddingFreeCollator",
    "VisionCollator",
    "VisionPaddedCollator",
    "VisionPaddingFreeCollator",
    "get_pos_ids_for_packed_sequence",
]
