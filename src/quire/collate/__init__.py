"""Rows in, a batch out that a model takes as it is.

`DataCollatorForCausalLM` stacks rows into `[B, T]`; `PaddingFreeCollator` lays them end to end as
`[1, N]`. Both read `input_ids`, and where a row has them `labels`, `document_starts` (or TRL's
`seq_lengths`, or `position_ids`) and a loss mask. transformers' Trainer drops columns that the
model does not name: give it `remove_unused_columns=False`, or `document_starts` never arrive.

Vision-language samples have collators of their own: `VisionPaddingFreeCollator` lays packs end to
end, `VisionPaddedCollator` pads samples, and `VisionCollator` does either, by what comes.
"""

from quire.collate.causal_lm import DataCollatorForCausalLM
from quire.collate.padding_free import PaddingFreeCollator
from quire.collate.positions import get_pos_ids_for_packed_sequence
from quire.collate.vision import VisionPaddingFreeCollator
from quire.collate.vision_mrope import MropeOptions
from quire.collate.vision_padded import VisionCollator, VisionPaddedCollator

__all__ = [
    "DataCollatorForCausalLM",
    "MropeOptions",
    "PaddingFreeCollator",
    "VisionCollator",
    "VisionPaddedCollator",
    "VisionPaddingFreeCollator",
    "get_pos_ids_for_packed_sequence",
]
