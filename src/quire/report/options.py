"""What a report shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    """What a report shows of a dataset."""

    num_rows: int = 48
    """Rows in the picture."""
    num_samples: int = 3
    """Rows whose text is shown, if the tokenizer is known."""
    num_ranks: int = 8
    rows_per_rank: int = 1
    """Ranks, and rows of each in a step, for the balance of attention cost."""
    cache_dir: Path | None = None
    """Holds the memory-mapped copy of an index-only output, as for `PackedDataset`."""
