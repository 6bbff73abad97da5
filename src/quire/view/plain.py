"""A row as plain data, for programs."""

from __future__ import annotations

from typing import Any

from quire.view.rows import IGNORE, Decode, RowView


def plain_row(row: RowView, decode: Decode | None = None) -> dict[str, Any]:
    """A row as JSON takes it; ``labels`` are unshifted, -100 where nothing is trained.

    >>> from quire.view.rows import row_view
    >>> plain_row(row_view(0, {"input_ids": [5, 6, 7], "document_starts": [0, 2]}))["labels"]
    [-100, 6, -100]
    """
    ids = row.input_ids.tolist()
    flags = row.trained.tolist()
    return {
        "row": row.number,
        "tokens": len(ids),
        "trained": int(row.trained.sum()),
        "padding": row.padding,
        "has_boundaries": row.has_starts,
        "has_labels": row.has_labels,
        "fragments": [_fragment(row, place, decode) for place in range(len(row.starts))],
        "input_ids": ids,
        "labels": [token if flag else IGNORE for token, flag in zip(ids, flags, strict=True)],
    }


def _fragment(row: RowView, place: int, decode: Decode | None) -> dict[str, Any]:
    start, stop = row.spans[place]
    plain: dict[str, Any] = {
        "start": start,
        "tokens": stop - start,
        "trained": int(row.trained[start:stop].sum()),
    }
    if row.sources:
        source = row.sources[place]
        plain |= {
            "document": source.document,
            "file": source.file,
            "record": source.record,
            "offset": source.offset,
            "continued": source.is_continuation,
        }
        plain |= {"answer": source.answer} if source.answer else {}
    if decode is not None:
        plain["text"] = decode(row.input_ids[start:stop].tolist())
    return plain
