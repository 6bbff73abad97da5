"""What `pack_corpus` and `replan` give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.ledger import Ledger
from quire.storage import AnyPath


@dataclass(frozen=True, kw_only=True)
class PackResult:
    """What stands on disk now."""

    path: AnyPath
    manifest: Mapping[str, Any]
    plan: str | None = None
    """The name of the plan, where documents and plans stand apart (``index_only``)."""
    was_complete: bool = False
    """Whether it stood there before, so that nothing was done."""

    @property
    def ledger(self) -> Ledger:
        """What became of every document and token."""
        return Ledger.from_dict(self._rows["ledger"])

    @property
    def num_rows(self) -> int:
        """Rows in all shards."""
        return int(self._rows["rows"])

    @property
    def num_tokens(self) -> int:
        """Tokens in all rows."""
        return int(self._rows["tokens"])

    @property
    def utilization(self) -> float:
        """Content over rows x length."""
        tokens = self.ledger.tokens
        places = self.num_rows * int(self._rows["options"]["max_length"])
        return (tokens.emitted + tokens.overlap) / places if places else 0.0

    @property
    def _rows(self) -> Mapping[str, Any]:
        """What is said of the rows: of the plan's, or of those in the shards."""
        if self.plan is None:
            return self.manifest
        return next(entry for entry in self.manifest["plans"] if entry["name"] == self.plan)
