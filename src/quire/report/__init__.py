"""The report: one page that shows what a packed dataset holds and what became of its input."""

from quire.report.options import ReportOptions
from quire.report.page import report_figures, write_report

__all__ = ["ReportOptions", "report_figures", "write_report"]
