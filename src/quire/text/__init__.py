"""Text and conversations to token ids."""

from quire.options import EncodeOptions
from quire.text.byte_tokenizer import ByteTokenizer
from quire.text.encode import encode_texts
from quire.text.encoded import Encoded
from quire.text.tokenizer import Tokenizer, TokenizerLike, as_tokenizer

__all__ = [
    "ByteTokenizer",
    "EncodeOptions",
    "Encoded",
    "Tokenizer",
    "TokenizerLike",
    "as_tokenizer",
    "encode_texts",
]
