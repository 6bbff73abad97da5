"""Packed rows as a person sees them: from datasets, files, streams and recipes."""

from quire.view.display import DisplayOptions, histogram_lines, show_row
from quire.view.opening import open_rows
from quire.view.rows import Rows, RowView

__all__ = ["DisplayOptions", "RowView", "Rows", "histogram_lines", "open_rows", "show_row"]
