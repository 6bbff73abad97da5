"""Where documents start in packed rows, in every form that libraries use.

`document_starts` and the row's length are what is stored; all other forms are made from them and
can be converted back:

===============  ====================  =================================
form             of [0, 3], length 5   on the padding of a row of 7 tokens
===============  ====================  =================================
lengths          3 2                   not counted
cu_seqlens       0 3 5                 one more segment: 0 3 5 7
segment_ids      1 1 1 2 2             0 0
seq_idx          0 0 0 1 1             2 2, a segment of its own
position_ids     0 1 2 0 1             0 1, a segment of its own
===============  ====================  =================================

`row` converts single rows, `batch` all rows of a batch at once; NumPy in, NumPy out.
"""

from quire.boundaries.batch import Boundaries, require_multiple
from quire.boundaries.row import (
    check_starts,
    cu_seqlens,
    fitting_length,
    lengths_from_starts,
    padded_cu_seqlens,
    position_ids,
    segment_ids,
    seq_idx,
    starts_from_cu_seqlens,
    starts_from_lengths,
    starts_from_position_ids,
    starts_from_segment_ids,
    starts_from_seq_idx,
    starts_from_tokens,
)

__all__ = [
    "Boundaries",
    "check_starts",
    "cu_seqlens",
    "fitting_length",
    "lengths_from_starts",
    "padded_cu_seqlens",
    "position_ids",
    "require_multiple",
    "segment_ids",
    "seq_idx",
    "starts_from_cu_seqlens",
    "starts_from_lengths",
    "starts_from_position_ids",
    "starts_from_segment_ids",
    "starts_from_seq_idx",
    "starts_from_tokens",
]
