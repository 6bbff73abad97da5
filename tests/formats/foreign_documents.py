"""What the corpora in tests/formats/foreign hold."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "foreign"
EOS = 50256
"""GPT-2's end of text, which ends no chat message."""
LENGTHS = (5, 1, 12, 3, 30, 2, 7, 9, 1, 17)
DOCUMENTS = [
    [(number * 977 + place * 31) % 50000 + 1 for place in range(length)]
    for number, length in enumerate(LENGTHS)
]
"""Ten documents; none holds EOS."""
SENTENCES = [DOCUMENTS[0:1], DOCUMENTS[1:4], DOCUMENTS[4:9], DOCUMENTS[9:10]]
"""The same as sentences of four documents."""


def loss_of(document: list[int]) -> list[bool]:
    """Which tokens of a document are trained: not the first two."""
    return [place > 1 for place in range(len(document))]
