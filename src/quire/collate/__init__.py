"""Rows in, a batch out that a model takes as it is.

`DataCollatorForCausalLM` stacks rows into `[B, T]`; `PaddingFreeCollator` lays them end to end as
`[1, N]`. Both read `input_ids`, and where a row has them `labels`, `document_starts` (or TRL's
`seq_lengths`) and a loss mask. transformers' Trainer drops columns that the model does not name:
give it `remove_unused_columns=False`, or `document_starts` never arrive.
"""

from quire.collate.causal_lm import DataCollatorForCausalLM
from quire.collate.padding_free import PaddingFreeCollator
from quire.collate.positions import get_pos_ids_for_packed_sequence

__all__ = [
    "DataCollatorForCausalLM",
    "PaddingFreeCollator",
    "get_pos_ids_for_packed_sequence",
]
