"""A packed dataset read back: rows by number, from mapped memory, in batches for any world size."""

from quire.dataset.packed.dataset import PackedDataset
from quire.dataset.packed.loader import PackedLoader

__all__ = ["PackedDataset", "PackedLoader"]
