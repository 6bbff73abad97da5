"""Show packed rows of datasets, files, streams, recipes and live batches."""

from quire.view.display import DisplayOptions, histogram_lines, show_row
from quire.view.notebook import Shown, show
from quire.view.rows import Rows, RowView, Source
from quire.view.sources import open_rows

__all__ = [
    "DisplayOptions",
    "RowView",
    "Rows",
    "Shown",
    "Source",
    "histogram_lines",
    "open_rows",
    "show",
    "show_row",
]
