"""Whole datasets: packed globally, not one map batch at a time."""

from quire.dataset.pack import pack_dataset

__all__ = ["pack_dataset"]
