"""Packing of literal texts, by both functions of `quire.blocks`."""

from __future__ import annotations

from tests.text.literal_tokenizer import LiteralTokenizer

from quire.blocks import BlockOptions, PackedRows, block_tokenize_fn, pack_texts

PLAIN = LiteralTokenizer(bos_token_id=None, eos_token_id=None)


def pack(texts, tokenizer=PLAIN, **options) -> PackedRows:
    """`pack_texts` under the names of `block_tokenize_fn`, which must give the same rows."""
    rows = pack_texts(texts, tokenizer, BlockOptions(**options))
    assert block_tokenize_fn({"text": texts}, tokenizer, "text", **options) == {
        "input_ids": rows.input_ids,
        "document_starts": rows.document_starts,
    }
    rows.ledger.check()
    return rows
