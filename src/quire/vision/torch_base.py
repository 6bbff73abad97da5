"""What torch's loaders ask of a dataset, and stand-ins where torch is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quire.vision.ranks import Share

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchMap
    from torch.utils.data import IterableDataset as TorchIterable

    class IterableBase(TorchIterable[Any]):
        """torch's own class."""

    class MapBase(TorchMap[Any]):
        """torch's own class."""
else:
    try:
        from torch.utils.data import Dataset as MapBase
        from torch.utils.data import IterableDataset as IterableBase
    except ImportError:

        class IterableBase:
            """Packing needs no torch; a `DataLoader` does."""

        class MapBase:
            """Packing needs no torch; a `DataLoader` does."""


def worker_share() -> Share:
    """This process's share among the workers of a `DataLoader`; all, outside of one."""
    info = _worker_info()
    return Share() if info is None else Share(index=info.id, count=info.num_workers)


def is_worker() -> bool:
    """Whether this process is a worker of a `DataLoader`."""
    return _worker_info() is not None


def _worker_info() -> Any:  # noqa: ANN401 - torch's `WorkerInfo`
    try:
        from torch.utils.data import get_worker_info
    except ImportError:
        return None
    return get_worker_info()
