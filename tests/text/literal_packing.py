"""Packing of literal texts, by both of the ways that `quire.blocks` has."""

from __future__ import annotations

from tests.text.literal_tokenizer import LiteralTokenizer

from quire.blocks import BlockOptions, PackedRows, block_tokenize_fn, pack_texts
from quire.text import EncodeOptions

PLAIN = LiteralTokenizer(bos_token_id=None, eos_token_id=None)
ENCODE = {
    "add_bos": "add_bos",
    "add_eos": "add_eos",
    "max_len": "drop_longer_than",
    "truncate_at": "truncate_at",
}


def pack(texts, tokenizer=PLAIN, **options) -> PackedRows:
    """`pack_texts` under the names of `block_tokenize_fn`, which must give the same rows."""
    encode = {ours: options[name] for name, ours in ENCODE.items() if name in options}
    rest = {name: value for name, value in options.items() if name not in ENCODE}
    rows = pack_texts(texts, tokenizer, BlockOptions(**rest, encode=EncodeOptions(**encode)))
    assert block_tokenize_fn({"text": texts}, tokenizer, "text", **options) == {
        "input_ids": rows.input_ids,
        "document_starts": rows.document_starts,
    }
    rows.ledger.check()
    return rows
