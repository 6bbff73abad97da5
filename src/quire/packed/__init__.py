"""A packed dataset read back: rows by number, from mapped memory, in batches for any world size."""

from quire.packed.dataset import PackedDataset
from quire.packed.loader import PackedLoader

__all__ = ["PackedDataset", "PackedLoader"]
