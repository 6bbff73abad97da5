"""What padding would compute for the documents of a plan, beside what the plan computes."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.plan import Plan
from quire.printable import counted


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddingComparison:
    """The work of padded and of packed batches for the same tokens.

    Padded batches have one fragment in each row and are as wide as their longest fragment, rows in
    random order. Pairs are those of causal attention: padding attends like tokens, and packed
    documents attend only to themselves.
    """

    padded_rows: int
    padded_tokens: int
    """Positions that are computed, padding included."""
    padded_tokens_to_max_length: int
    """The same if every row is padded to the row length."""
    padded_pairs: int
    packed_rows: int
    packed_tokens: int
    packed_pairs: int

    @property
    def tokens_saved(self) -> float:
        """The share of the padded positions that packing does not compute."""
        return 1 - self.packed_tokens / self.padded_tokens if self.padded_tokens else 0.0

    @property
    def pairs_saved(self) -> float:
        """The share of the padded attention pairs that packing does not compute."""
        return 1 - self.packed_pairs / self.padded_pairs if self.padded_pairs else 0.0

    def to_dict(self) -> dict[str, float]:
        """The figures as plain values."""
        shares = {"tokens_saved": self.tokens_saved, "pairs_saved": self.pairs_saved}
        return {**asdict(self), **shares}

    def lines(self) -> list[str]:
        """The comparison as two lines of text.

        >>> from quire import make_plan
        >>> for line in compare_with_padding(make_plan([3, 1, 2, 2], 4), batch_size=2).lines():
        ...     print(line)
        padded: 4 rows, 10 tokens (16 if all are padded to 4), 18 attention pairs
        packed: 2 rows, 8 tokens (20.0% fewer), 13 attention pairs (27.8% fewer)
        """
        width = self.padded_tokens_to_max_length // max(1, self.padded_rows)
        return [
            f"padded: {counted(self.padded_rows, 'row')}, {counted(self.padded_tokens, 'token')} "
            f"({self.padded_tokens_to_max_length:,} if all are padded to {width:,}), "
            f"{self.padded_pairs:,} attention pairs",
            f"packed: {counted(self.packed_rows, 'row')}, {counted(self.packed_tokens, 'token')} "
            f"({_change(self.tokens_saved)}), {self.packed_pairs:,} attention pairs "
            f"({_change(self.pairs_saved)})",
        ]


def compare_with_padding(plan: Plan, batch_size: int, seed: int = 0) -> PaddingComparison:
    """The work of a plan's rows, and of its fragments padded in batches of this size."""
    sizes = (plan.stops - plan.starts + plan.options.prefix).astype(np.int64)
    shuffled = np.random.default_rng(seed).permutation(sizes)
    firsts = np.arange(0, len(shuffled), batch_size)
    widths = np.maximum.reduceat(shuffled, firsts) if len(firsts) else shuffled
    rows = np.diff(np.append(firsts, len(shuffled)))
    return PaddingComparison(
        padded_rows=len(sizes),
        padded_tokens=int((widths * rows).sum()),
        padded_tokens_to_max_length=len(sizes) * plan.max_length,
        padded_pairs=int((_pairs(widths) * rows).sum()),
        packed_rows=plan.num_rows,
        packed_tokens=plan.num_rows * plan.max_length,
        packed_pairs=int(_pairs(sizes).sum()),
    )


def _pairs(lengths: IntArray) -> IntArray:
    return lengths * (lengths + 1) // 2


def _change(saved: float) -> str:
    return f"{abs(saved):.1%} {'fewer' if saved >= 0 else 'more'}"
