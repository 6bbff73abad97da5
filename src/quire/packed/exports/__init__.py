"""`export`: packed rows in the files that other trainers read.

Rows are written in parts. A part is committed when its last file has its name, so an interrupted
export continues after the parts that are there.
"""

from __future__ import annotations

from quire.packed.exports.export import EXPORTS, ExportOptions, ExportResult, export

__all__ = ["EXPORTS", "ExportOptions", "ExportResult", "export"]
