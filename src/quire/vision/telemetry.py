"""Fill ratios of an epoch's packs, as a record, as metrics and as a log line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from quire.ledger import Ledger
from quire.printable import counted

NUM_BINS = 20
_TRAINER_METRICS = frozenset(
    {
        "loss",
        "token_acc",
        "grad_norm",
        "learning_rate",
        "epoch",
        "step",
        "total_flos",
        "num_input_tokens_seen",
        "train_loss",
        "train_runtime",
        "train_samples_per_second",
        "train_steps_per_second",
        "train_tokens_per_second",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingTelemetry:
    """The packs that one rank delivered in an epoch, or in the part of it so far.

    Fill ratios are tokens over ``packing_length``; a pack of one long sample counts as full.
    """

    epoch: int
    packing_length: int
    num_packs: int
    num_samples: int
    fill_mean: float
    fill_p5: float
    fill_p50: float
    fill_p95: float
    histogram: tuple[int, ...]
    """Packs by fill ratio, in twenty equal steps from 0 to 1."""
    num_single_long: int
    num_skipped: int
    """Samples skipped because they are as long as a pack or longer."""
    ledger: Ledger

    @classmethod
    def of_packs(
        cls, packs: Mapping[int, int], *, packing_length: int, ledger: Ledger, **others: int
    ) -> PackingTelemetry:
        """The telemetry of ``packs``, which maps numbers of tokens to numbers of packs."""
        sizes = np.array(sorted(packs), dtype=np.int64)
        counts = np.array([packs[size] for size in sizes.tolist()], dtype=np.int64)
        ratios = sizes / packing_length
        num_packs = int(counts.sum())
        bins = np.minimum(sizes * NUM_BINS // packing_length, NUM_BINS - 1)
        return cls(
            packing_length=packing_length,
            num_packs=num_packs,
            num_samples=ledger.documents.emitted,
            fill_mean=float((ratios * counts).sum() / max(1, num_packs)),
            fill_p5=_percentile(ratios, counts, 0.05),
            fill_p50=_percentile(ratios, counts, 0.5),
            fill_p95=_percentile(ratios, counts, 0.95),
            histogram=tuple(np.bincount(bins, counts, NUM_BINS).astype(int).tolist()),
            num_skipped=ledger.documents.dropped["skipped_oversized"],
            ledger=ledger,
            **others,
        )

    @property
    def single_long_percent(self) -> float:
        """Percentage of all packs, counting each skipped sample as a pack."""
        return self._percent(self.num_single_long)

    @property
    def skipped_percent(self) -> float:
        """Percentage of all packs, counting each skipped sample as a pack."""
        return self._percent(self.num_skipped)

    def _percent(self, number: int) -> float:
        return 100 * number / max(1, self.num_packs + self.num_skipped)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **{part.name: getattr(self, part.name) for part in fields(self)},
            "histogram": list(self.histogram),
            "single_long_percent": self.single_long_percent,
            "skipped_percent": self.skipped_percent,
            "ledger": self.ledger.to_dict(),
        }

    def metrics(self, prefix: str = "packing/") -> dict[str, float]:
        """Flat numbers over all datasets, for a trainer's log."""
        names = (
            *("num_packs", "num_samples", "fill_mean", "fill_p5", "fill_p50", "fill_p95"),
            *("num_single_long", "num_skipped", "single_long_percent", "skipped_percent"),
        )
        metrics = {f"{prefix}{name}": float(getattr(self, name)) for name in names}
        return metrics | {f"{prefix}num_dropped_samples": float(self.ledger.documents.num_dropped)}

    def line(self) -> str:
        """One line for the log."""
        documents, tokens = self.ledger.documents, self.ledger.tokens
        dropped = ", ".join(
            f"{reason} {counted(number, 'sample')} ({counted(tokens.dropped[reason], 'token')})"
            for reason, number in sorted(documents.dropped.items())
        )
        return (
            f"packing, epoch {self.epoch}: {counted(self.num_packs, 'pack')} of "
            f"{self.packing_length} tokens from {counted(self.num_samples, 'sample')}; "
            f"fill ratio mean {self.fill_mean:.3f}, "
            f"p5 {self.fill_p5:.3f}, p50 {self.fill_p50:.3f}, p95 {self.fill_p95:.3f}; "
            f"single-long {self.num_single_long} ({self.single_long_percent:.1f} %), "
            f"skipped {self.num_skipped} ({self.skipped_percent:.1f} %); "
            f"dropped: {dropped or 'nothing'}"
        )


def aggregate_metrics(
    metrics: Mapping[str, float], sources: Iterable[str] = ()
) -> dict[str, float]:
    """The metrics without those of single datasets, which are meaningless when a pack mixes them.

    Metrics that the Trainer itself reports cover all data, so they are kept regardless of what
    datasets are called.

    >>> aggregate_metrics({"loss": 1.0, "loss_charts": 2.0, "charts/token_acc": 0.5}, ["charts"])
    {'loss': 1.0}
    """
    names = "|".join(re.escape(name) for name in sources)
    if not names:
        return dict(metrics)
    of_source = re.compile(rf"(?:^|[^0-9A-Za-z])(?:{names})(?:$|[^0-9A-Za-z])")
    return {
        name: value
        for name, value in metrics.items()
        if name in _TRAINER_METRICS or name.startswith("packing/") or not of_source.search(name)
    }


def _percentile(ratios: np.ndarray, counts: np.ndarray, share: float) -> float:
    """The smallest ratio that at least this share of packs does not exceed."""
    if not len(ratios):
        return 0.0
    reached = np.cumsum(counts) >= share * counts.sum()
    return float(ratios[int(reached.argmax())])
