"""Memory that a process shares with the workers of its data loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.utils.data._utils.worker import WorkerInfo


class SharedNumbers:
    """A few integers in memory that forked and spawned workers share with the main process.

    A deep copy has its own memory, for its own workers.

    >>> numbers = SharedNumbers(3, 4)
    >>> numbers.write(5, 6)
    >>> numbers.read()
    (5, 6)
    """

    def __init__(self, *numbers: int) -> None:
        self._numbers: Any = list(numbers)
        try:
            import torch
        except ImportError:
            return  # without torch there are no workers
        tensor = torch.tensor(numbers, dtype=torch.int64)
        self._numbers = tensor.share_memory_()  # type: ignore[no-untyped-call]

    def write(self, *numbers: int) -> None:
        """Set all of them, in order."""
        for index, number in enumerate(numbers):
            self._numbers[index] = number

    def read(self) -> tuple[int, ...]:
        """The values written last, by any process."""
        return tuple(int(number) for number in self._numbers)

    def __deepcopy__(self, memo: object) -> SharedNumbers:
        return SharedNumbers(*self.read())

    def __setstate__(self, state: dict[str, Any]) -> None:
        numbers = state["_numbers"]
        # Pickled for a worker, the tensor arrives shared; pickled for anything else, it does not.
        is_shared = isinstance(numbers, list) or numbers.is_shared()
        self._numbers = numbers if is_shared else numbers.share_memory_()


class OneUse:
    """Whether a pass over a dataset may use something set for a single pass, such as a state.

    Workers that are not persistent are created for every pass, as copies of the main process, so
    each has what was set there. The first pass whose workers ask may use it. A pass is identified
    by the seed its loader draws; a seed drawn again, after the same `torch.manual_seed`, counts as
    the same pass.
    """

    def __init__(self) -> None:
        self._number: int | None = 0
        self._used = SharedNumbers(0, -1)  # the pass that used it, then its number: in this order

    def renew(self) -> None:
        """Record that something was set; inside a worker it affects only that worker."""
        self._number = None if _pass_seed() is not None else (self._number or 0) + 1

    def is_over(self) -> bool:
        """Whether workers of another pass have used it; if not, a worker claims it for its pass."""
        seed, (used_by, used) = _pass_seed(), self._used.read()
        if self._number is None:
            return False
        if seed is None or used == self._number:
            return used == self._number and used_by != seed
        self._used.write(seed, self._number)
        return False


def worker_info() -> WorkerInfo | None:
    """torch's information about this `DataLoader` worker; None outside of workers."""
    try:
        from torch.utils.data import get_worker_info
    except ImportError:
        return None
    return get_worker_info()


def _pass_seed() -> int | None:
    """A number that all workers of a pass share; None outside of workers."""
    worker = worker_info()
    return None if worker is None else int(worker.seed) - worker.id
