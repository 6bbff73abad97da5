"""Documents end to end in flat columns, ready to be planned and gathered."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.ledger import Ledger
from quire.options import PackOptions
from quire.plan import PlanOptions, plan_options


@dataclass(frozen=True, kw_only=True, slots=True)
class Documents:
    """Document d is ``values[offsets[d] : offsets[d] + lengths[d]]`` of every column.

    Columns are Arrow arrays of the same length, so that tokens that are memory-mapped from a file
    are not copied before they are gathered.
    """

    columns: dict[str, pa.Array]
    offsets: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    numbers: npt.NDArray[np.int64]
    """The number of each document in the input."""
    prefix_at: int | None = None
    """Where the columns hold the token that starts every fragment (BOS), if there is one."""
    ends_with_eos: bool = False
    """Whether every document's last token is an EOS that was added to it."""
    is_paired: bool = False
    """Whether documents of which the numbers are 2n and 2n + 1 share a row."""
    ledger: Ledger = field(default_factory=Ledger)
    """What was dropped before planning, and is not among these documents."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def prefix(self) -> int:
        """How many tokens start every fragment."""
        return int(self.prefix_at is not None)

    def plan_options(self, options: PackOptions, **changes: object) -> PlanOptions:
        """The options with what the planner needs to know about these documents."""
        return plan_options(options, self.prefix, self.ends_with_eos, **changes)
