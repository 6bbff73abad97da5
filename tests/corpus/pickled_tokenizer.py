"""A tokenizer that knows how often it was sent to another process."""

from __future__ import annotations

import os
import warnings


class PickledTokenizer:
    """A token for every character, and as many additional bytes as requested."""

    bos_token_id = eos_token_id = pad_token_id = None
    vocab_size = 0x110000

    def __init__(self, ballast: bytes = b"") -> None:
        self.ballast, self.times_pickled = ballast, 0

    def __call__(self, texts, **_):
        return {"input_ids": [[ord(character) for character in text] for text in texts]}

    def __getstate__(self):
        self.times_pickled += 1
        return self.__dict__


class WarningTokenizer(PickledTokenizer):
    """Warns whenever it encodes in another process."""

    def __init__(self) -> None:
        super().__init__()
        self.home = os.getpid()

    def __call__(self, texts, **options):
        if texts and os.getpid() != self.home:
            warnings.warn("a text was encoded", stacklevel=1)
        return super().__call__(texts, **options)
