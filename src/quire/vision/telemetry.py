"""How full packs were, which of them held one long sample, and what was left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from quire.ledger import Ledger
from quire.vision.state import read_count, read_rows

NUM_BINS = 20
_OF_A_TRAINER = frozenset(
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
    """An epoch, or the part of it that was delivered, on one rank.

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
    """Samples as long as a pack, or longer, that were left out."""
    ledger: Ledger

    @property
    def single_long_percent(self) -> float:
        """Of all packs, those that were skipped included."""
        return self._percent(self.num_single_long)

    @property
    def skipped_percent(self) -> float:
        """Of all packs, those that were skipped included."""
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
        """Flat numbers over all data, for a trainer's log; none of a single source."""
        documents = self.ledger.documents
        names = ("num_packs", "num_samples", "fill_mean", "fill_p5", "fill_p50", "fill_p95")
        numbers = {name: float(getattr(self, name)) for name in names}
        numbers |= {
            "num_single_long": float(self.num_single_long),
            "num_skipped": float(self.num_skipped),
            "single_long_percent": self.single_long_percent,
            "skipped_percent": self.skipped_percent,
            "num_dropped_samples": float(documents.num_dropped),
        }
        return {f"{prefix}{name}": number for name, number in numbers.items()}

    def line(self) -> str:
        """One line for the log."""
        documents, tokens = self.ledger.documents, self.ledger.tokens
        dropped = ", ".join(
            f"{reason} {number} samples ({tokens.dropped[reason]} tokens)"
            for reason, number in sorted(documents.dropped.items())
        )
        return (
            f"packing, epoch {self.epoch}: {self.num_packs} packs of {self.packing_length} tokens "
            f"from {self.num_samples} samples; fill ratio mean {self.fill_mean:.3f}, "
            f"p5 {self.fill_p5:.3f}, p50 {self.fill_p50:.3f}, p95 {self.fill_p95:.3f}; "
            f"single-long {self.num_single_long} ({self.single_long_percent:.1f} %), "
            f"skipped {self.num_skipped} ({self.skipped_percent:.1f} %); "
            f"dropped: {dropped or 'nothing'}"
        )


class PackRecorder:
    """Counts packs as they are delivered; exact, and no larger than a pack has tokens."""

    def __init__(self, packing_length: int) -> None:
        self._packing_length = packing_length
        self._fills: Counter[int] = Counter()
        self._num_samples = 0
        self._num_single_long = 0

    def copy(self) -> PackRecorder:
        """A recorder that goes on from the same counts."""
        other = copy(self)
        other._fills = self._fills.copy()
        return other

    def add(self, tokens: int, num_samples: int, *, single_long: bool) -> None:
        """Count one pack."""
        self._fills[min(tokens, self._packing_length)] += 1
        self._num_samples += num_samples
        self._num_single_long += single_long

    def telemetry(self, epoch: int, ledger: Ledger) -> PackingTelemetry:
        """What was counted so far."""
        sizes = np.array(sorted(self._fills), dtype=np.int64)
        counts = np.array([self._fills[size] for size in sizes.tolist()], dtype=np.int64)
        ratios = sizes / self._packing_length
        num_packs = int(counts.sum())
        bins = np.minimum(sizes * NUM_BINS // self._packing_length, NUM_BINS - 1)
        p5, p50, p95 = (_percentile(ratios, counts, share) for share in (0.05, 0.5, 0.95))
        return PackingTelemetry(
            epoch=epoch,
            packing_length=self._packing_length,
            num_packs=num_packs,
            num_samples=self._num_samples,
            fill_mean=float((ratios * counts).sum() / max(1, num_packs)),
            fill_p5=p5,
            fill_p50=p50,
            fill_p95=p95,
            histogram=tuple(np.bincount(bins, counts, NUM_BINS).astype(int).tolist()),
            num_single_long=self._num_single_long,
            num_skipped=ledger.documents.dropped["skipped_oversized"],
            ledger=ledger,
        )

    def to_state(self) -> dict[str, Any]:
        """Plain counts."""
        fills = [[size, number] for size, number in sorted(self._fills.items())]
        return {"fills": fills, "samples": self._num_samples, "single_long": self._num_single_long}

    def restore(self, plain: Mapping[str, Any]) -> None:
        """Go on from counts that `to_state` gave."""
        for size, number in read_rows("fills", plain.get("fills"), 2):
            length = read_count("fill", size, self._packing_length)
            self._fills[length] = read_count("packs", number)
        self._num_samples = read_count("samples", plain.get("samples"))
        self._num_single_long = read_count("single-long packs", plain.get("single_long"))


def aggregate_metrics(
    metrics: Mapping[str, float], sources: Iterable[str] = ()
) -> dict[str, float]:
    """The metrics without those of single datasets: a pack mixes them, so their numbers would lie.

    What a Trainer itself reports is over all data, whatever datasets are called.

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
        if name in _OF_A_TRAINER or name.startswith("packing/") or not of_source.search(name)
    }


def _percentile(ratios: np.ndarray, counts: np.ndarray, share: float) -> float:
    """The smallest ratio that at least this share of packs does not exceed."""
    if not len(ratios):
        return 0.0
    reached = np.cumsum(counts) >= share * counts.sum()
    return float(ratios[int(reached.argmax())])
