"""Whether an error says that an image is bad, or that something else failed.

No decoder is imported: who decodes is the dataset, and what it raised tells by whom.
"""

from __future__ import annotations

from quire.errors import InvalidDocument
from quire.printable import printable

_DECODER = "PIL"


def as_bad_sample(error: Exception) -> InvalidDocument | None:
    """What is wrong with the sample, if the error is about its content; None for all others.

    Content is what Pillow refuses (an image over its limit of pixels, cut off, of no known kind)
    and what a dataset itself calls an `InvalidDocument`. A file that is missing, a disk or a
    network that fails are no word about the sample, and so are no reason to go on without it.

    >>> as_bad_sample(InvalidDocument("its image is black"))
    InvalidDocument('cannot be read: its image is black')
    >>> as_bad_sample(FileNotFoundError(2, "No such file")) is None
    True
    """
    said = printable(str(error), keep="").rstrip(".")  # a decoder may quote a file's bytes
    if isinstance(error, InvalidDocument):
        return InvalidDocument(f"cannot be read: {said}")
    if _is_refused_image(error):
        return InvalidDocument(f"has an image that cannot be read: {type(error).__name__}: {said}")
    return None


def raise_if_bad_sample(error: Exception) -> None:
    """Nothing, or an `InvalidDocument` if the error is about the content of a sample."""
    if (problem := as_bad_sample(error)) is not None:
        raise problem from error


def _is_refused_image(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:
        return False  # the system's word, which may be another one next time
    if _belongs_to_decoder(type(error).__module__) or _belongs_to_decoder(_raised_in(error)):
        return True
    return error.__cause__ is not None and _is_refused_image(error.__cause__)


def _raised_in(error: BaseException) -> str:
    """The module that raised; a store's file that Pillow reads from raises in its own."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return "" if place is None else str(place.tb_frame.f_globals.get("__name__", ""))


def _belongs_to_decoder(module: str) -> bool:
    return module.partition(".")[0] == _DECODER
