"""Text to token ids, and tokens to rows."""

from quire.documents.byte_tokenizer import ByteTokenizer
from quire.documents.documents import Documents
from quire.documents.encode import EncodeOptions, encode_texts
from quire.documents.encoded import Encoded
from quire.documents.gather import gather
from quire.documents.tokenizer import Tokenizer, TokenizerLike, as_tokenizer

__all__ = [
    "ByteTokenizer",
    "Documents",
    "EncodeOptions",
    "Encoded",
    "Tokenizer",
    "TokenizerLike",
    "as_tokenizer",
    "encode_texts",
    "gather",
]
