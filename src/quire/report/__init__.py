"""The report: one page that shows what a packed dataset holds and what became of its input."""

from quire.report.figures import ReportOptions, figures_of
from quire.report.page import write_report
from quire.report.shapes import RowShapes, read_shapes

__all__ = ["ReportOptions", "RowShapes", "figures_of", "read_shapes", "write_report"]
