"""Reading packed datasets: rows by number from mapped memory, and batches for any world size."""

from quire.packed.dataset import PackedDataset
from quire.packed.loader import PackedLoader

__all__ = ["PackedDataset", "PackedLoader"]
