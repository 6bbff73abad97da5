"""What torch's loaders ask of a dataset, and stand-ins where torch is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quire.vision.ranks import Share

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset as TorchIterable

    class IterableBase(TorchIterable[Any]):
        """torch's own class."""
else:
    try:
        from torch.utils.data import IterableDataset as IterableBase
    except ImportError:

        class IterableBase:
            """Packing needs no torch; a `DataLoader` does."""


def worker_share() -> Share:
    """This process's share among the workers of a `DataLoader`; all, outside of one."""
    try:
        from torch.utils.data import get_worker_info
    except ImportError:
        return Share()
    info = get_worker_info()
    return Share() if info is None else Share(index=info.id, count=info.num_workers)
