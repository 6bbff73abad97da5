"""`show`: rows, batches and datasets in a notebook or a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from quire.errors import InvalidOption
from quire.markup import block, color, escaped, figures, row_bar
from quire.printable import counted
from quire.storage import as_path
from quire.text import TokenizerLike
from quire.view.batches import batch_views
from quire.view.display import DisplayOptions, content, fragment_line, runs, show_row
from quire.view.rows import Decode, Rows, RowView
from quire.view.sources import decoder, open_rows, packed_rows

_TRAINED = "background:hsla(130,70%,45%,.35);border-radius:2px"
_CONTENT = (
    "white-space:pre-wrap;overflow-wrap:anywhere;padding-left:.6em;margin:0 0 .5em;"
    "border-left:4px solid"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """Rows to look at: HTML in a notebook, text when printed."""

    kind: str
    views: tuple[RowView, ...]
    decode: Decode | None
    num_rows: int | None
    """How many rows there are; None if that is not known."""
    options: DisplayOptions

    def __str__(self) -> str:
        console = Console(width=100, color_system=None)
        with console.capture() as captured:
            for row in self.views:
                for line in show_row(row, self.decode, self.options):
                    console.print(line, soft_wrap=True)
            console.print(self._summary(), soft_wrap=True)
        return captured.get().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return block([*map(self._row_html, self.views), f"<i>{escaped(self._summary())}</i>"])

    def _summary(self) -> str:
        shown = len(self.views)
        rows = counted(shown, "row")
        if self.num_rows is not None:
            rows = f"{shown:,} of {counted(self.num_rows, 'row')}"
        text = f"{rows} of this {self.kind}; trained tokens are marked"
        return text if self.decode else f"{text}; name the tokenizer to see text"

    def _row_html(self, row: RowView) -> str:
        about = {
            "tokens": len(row.input_ids),
            "trained": int(row.trained.sum()),
            "documents": len(row.starts) if row.has_starts else "? (no document_starts)",
            "padding": row.padding,
        }
        names = [fragment_line(row, place, self.options) for place in range(len(row.starts))]
        spans = [(*span, name) for span, name in zip(row.spans, names, strict=True)]
        bar = row_bar(spans, len(row.input_ids) + row.padding)
        note = f"<p>warning: {escaped(row.note)}</p>" if row.note else ""
        parts = [self._fragment_html(row, place, name) for place, name in enumerate(names)]
        return figures(f"row {row.number}", about) + bar + note + "".join(parts)

    def _fragment_html(self, row: RowView, place: int, name: str) -> str:
        start, stop = row.spans[place]
        pieces = []
        for first, last, is_trained in runs(row, start, stop):
            text = escaped(content(row.input_ids[first:last].tolist(), self.decode, self.options))
            pieces.append(f"<span style='{_TRAINED}'>{text}</span>" if is_trained else text)
        space = "" if self.decode else " "
        return (
            f"<div style='opacity:.75'>{escaped(name)}</div>"
            f"<div style='{_CONTENT} {color(place)}'>{space.join(pieces)}</div>"
        )


def show(
    what: object,
    tokenizer: TokenizerLike | None = None,
    *,
    num_rows: int = 4,
    start: int = 0,
    full: bool = False,
) -> Shown:
    """The first rows of ``what``, with boundaries, trained tokens and sources.

    ``what`` is a batch of any collator, TRL's included, or of a stream; a `PackedDataset` or the
    path of one; a `datasets.Dataset` or an Arrow table of packed rows; one row, or a list of rows.
    Without a tokenizer, tokens are shown as numbers.

    >>> row = {"input_ids": [100, 101, 2, 102, 2], "labels": [-100, 101, 2, -100, 2],
    ...        "document_starts": [0, 3]}
    >>> print(show([row], "byte"))
    ------------- 0 Tokens: 5, Trained: 3, Documents: 2, Features: input_ids, labels, \
document_starts -------------
    ├─ 0 · starts at 0 · 3 tokens · 2 trained
    a⟦b⟧
    ├─ 1 · starts at 3 · 2 tokens · 1 trained
    c⟦⟧
    1 of 1 row of this list of rows; trained tokens are marked
    """
    rows = _rows_of(what, None if tokenizer is None else decoder(tokenizer))
    views = tuple(rows.views(start, num_rows))
    most = None if full else DisplayOptions().most
    return Shown(
        kind=rows.kind,
        views=views,
        decode=rows.decode,
        num_rows=rows.num_rows,
        options=DisplayOptions(labels=True, marks=True, most=most),
    )


def _rows_of(what: Any, decode: Decode | None) -> Rows:  # noqa: ANN401 - see `show`
    from quire.packed import PackedDataset

    if isinstance(what, Rows):
        return what
    if isinstance(what, PackedDataset):
        return packed_rows(what, decode)
    if isinstance(what, str | os.PathLike):
        return open_rows(as_path(what), decode=decode)
    if hasattr(what, "to_dict") and hasattr(what, "segment_ids"):
        return _batch_rows(what.to_dict(), "batch of a stream", decode)
    if isinstance(what, Mapping) or (hasattr(what, "data") and hasattr(what, "keys")):
        return _rows_of_mapping(what, decode)
    if hasattr(what, "to_batches"):
        what = what.to_pylist()
    if hasattr(what, "__len__") and hasattr(what, "__getitem__"):
        kind = "list of rows" if isinstance(what, Sequence) else type(what).__name__
        return Rows(kind=kind, rows=what, decode=decode, num_rows=len(what))
    raise InvalidOption(
        f"a {type(what).__name__} cannot be shown; pass a batch, a packed dataset or its path, or "
        "rows"
    )


def _rows_of_mapping(what: Mapping[str, Any], decode: Decode | None) -> Rows:
    tokens = what.get("input_ids")
    is_flat = tokens is not None and (
        getattr(tokens, "ndim", None) == 1
        or (isinstance(tokens, Sequence) and all(isinstance(token, int) for token in tokens))
    )
    if is_flat:
        return Rows(kind="row", rows=[what], decode=decode, num_rows=1)
    return _batch_rows(what, "batch", decode)


def _batch_rows(batch: Mapping[str, Any], kind: str, decode: Decode | None) -> Rows:
    views = list(batch_views(batch))
    return Rows(kind=kind, rows=views, decode=decode, num_rows=len(views))
