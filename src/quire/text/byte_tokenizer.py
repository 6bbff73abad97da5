"""One token per byte: no file, no training, any text."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.files import whole_file
from quire.text.encoded import Encoded

FILE = "byte_tokenizer.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteTokenizer:
    """Tokens are UTF-8 bytes plus an offset; the ids below the offset are special.

    >>> ByteTokenizer().encode_batch(["hi"]).tokens.tolist()
    [107, 108]
    """

    byte_offset: int = 3
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2

    def __post_init__(self) -> None:
        if self.byte_offset < 0:
            raise InvalidOption(f"byte_offset is {self.byte_offset} but must be >= 0")
        for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
            token = getattr(self, name)
            if token is not None and not (
                0 <= token < self.byte_offset or token >= self.byte_offset + 256
            ):
                raise InvalidOption(
                    f"{name} is {token} but bytes are the ids from {self.byte_offset} to "
                    f"{self.byte_offset + 255}; raise byte_offset or choose an id outside"
                )

    @property
    def adds_bos(self) -> bool:
        """Whether documents start with BOS by default: if there is one."""
        return self.bos_token_id is not None

    @property
    def vocab_size(self) -> int:
        """The number of ids: bytes, the ids below them, and special ids above."""
        specials = (self.pad_token_id, self.bos_token_id, self.eos_token_id)
        return max([256 + self.byte_offset, *(token + 1 for token in specials if token)])

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """The bytes of all texts."""
        pieces = [text.encode("utf-8") for text in texts]
        tokens = np.frombuffer(b"".join(pieces), dtype=np.uint8).astype(np.int32)
        tokens += self.byte_offset
        return Encoded(tokens=tokens, lengths=np.array([len(piece) for piece in pieces], np.int64))

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The bytes of one text, and (start, stop) of the character that each belongs to."""
        sizes = [len(character.encode("utf-8")) for character in text]
        places = [(n, n + 1) for n, size in enumerate(sizes) for _ in range(size)]
        return self.encode_batch([text]).tokens.tolist(), places

    def decode(self, tokens: Sequence[int]) -> str:
        """The text; special ids are left out, incomplete characters are replaced."""
        kept = bytes(t - self.byte_offset for t in tokens if 0 <= t - self.byte_offset < 256)
        return kept.decode("utf-8", errors="replace")

    def save_pretrained(self, folder: str | os.PathLike[str]) -> tuple[str]:
        """Write its options to the folder, which is then the path of this tokenizer.

        A Trainer calls this when it saves a checkpoint.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        file = Path(folder) / FILE
        with whole_file(file) as temporary:
            temporary.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        return (str(file),)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> ByteTokenizer:
        """The tokenizer that `save_pretrained` wrote."""
        file = Path(folder) / FILE
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise CorruptFile(f"{file} is not a byte tokenizer: {error}") from error
