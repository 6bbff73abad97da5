"""Show packed rows of datasets, files, streams and recipes."""

from quire.view.display import DisplayOptions, histogram_lines, show_row
from quire.view.rows import Rows, RowView
from quire.view.sources import open_rows

__all__ = ["DisplayOptions", "RowView", "Rows", "histogram_lines", "open_rows", "show_row"]
