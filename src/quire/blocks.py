"""The public name of `quire.compat.blocks`: texts of one batch to rows, for `datasets.map`."""

from quire.compat.blocks import (
    Bin,
    BlockOptions,
    Document,
    PackedRows,
    block_tokenize_fn,
    pack_sequences_optimized,
    pack_texts,
    split_document_optimally,
)

__all__ = [
    "Bin",
    "BlockOptions",
    "Document",
    "PackedRows",
    "block_tokenize_fn",
    "pack_sequences_optimized",
    "pack_texts",
    "split_document_optimally",
]
