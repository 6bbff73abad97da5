"""Records of formats that have no second reader here, read by the format that packed them.

This is the only module of the check that uses `quire.formats`. A mistake of such a format is made
twice and not found, so the report says which inputs were read this way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.errors import InvalidOption
from quire.formats import format_of
from quire.formats.corpora import CORPORA
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.format import BadRecord, Span


class _WholeRecords(Fields):
    """All fields of a record, so that what is needed of them is checked here."""

    def of(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The record itself."""
        return dict(record)


def read_packed_format(
    path: Path, kind: str, keys: Sequence[str], most_bytes: int
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(number, values) of every record; None for a bad one."""
    file = InputFile(number=0, path=path, name=path.name, size=path.stat().st_size)
    if kind.partition(":")[0] in CORPORA:
        file = replace(file, corpus=kind)
    elif format_of(path.name)[0] is None or file.kind != kind:
        raise InvalidOption(
            f"{path} was packed as {kind!r}, a format that is not registered here; register it "
            "in quire.formats, or verify the output without --inputs"
        )
    for batch in file.read(Span(), _WholeRecords(max_record_bytes=most_bytes)):
        for number, _, value in batch.in_order():
            values = value if isinstance(value, Mapping) else {keys[0]: value}
            is_bad = isinstance(value, BadRecord)
            yield number, None if is_bad else {key: values[key] for key in keys if key in values}
