"""What a process and the workers of its data loaders know together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SharedNumbers:
    """A few integers in memory that forked and spawned workers share with the main process.

    A copy has memory of its own, for workers of its own.

    >>> numbers = SharedNumbers(3, 4)
    >>> numbers.write(5, 6)
    >>> numbers.read()
    (5, 6)
    """

    def __init__(self, *numbers: int) -> None:
        self._numbers = _shared(numbers)

    def write(self, *numbers: int) -> None:
        """Set all of them, the first one first."""
        for place, number in enumerate(numbers):
            self._numbers[place] = number

    def read(self) -> tuple[int, ...]:
        """What was written last, by whichever process."""
        return tuple(int(number) for number in self._numbers)

    def __deepcopy__(self, memo: object) -> SharedNumbers:
        return SharedNumbers(*self.read())

    def __setstate__(self, state: dict[str, Any]) -> None:
        numbers = state["_numbers"]
        # Pickled for a worker it comes shared, pickled for something else it does not.
        is_shared = isinstance(numbers, list) or numbers.is_shared()
        self._numbers = numbers if is_shared else numbers.share_memory_()


class OneUse:
    """Whether a pass over a dataset may use what was set for one pass, such as a state.

    Workers that are not persistent are made anew for every pass, as copies of the main process, so
    each has what was set there. The first pass whose workers ask may use it. A pass is known by the
    seed that its loader draws; one that was drawn again, after the same `torch.manual_seed`, looks
    like the same pass.
    """

    def __init__(self) -> None:
        self._number: int | None = 0
        self._used = SharedNumbers(0, -1)  # by which pass, and which number: in this order

    def renew(self) -> None:
        """Something was set; inside a worker it concerns that worker alone."""
        self._number = None if _pass_seed() is not None else (self._number or 0) + 1

    def is_over(self) -> bool:
        """Whether workers of another pass have used it; in a worker, this pass uses it if not."""
        seed, (used_by, used) = _pass_seed(), self._used.read()
        if self._number is None:
            return False
        if seed is None or used == self._number:
            return used == self._number and used_by != seed
        self._used.write(seed, self._number)
        return False


def _shared(numbers: Sequence[int]) -> Any:  # noqa: ANN401 - a tensor, where torch is installed
    try:
        import torch
    except ImportError:
        return list(numbers)  # no workers either
    return torch.tensor(numbers, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]


def _pass_seed() -> int | None:
    """The same number in all workers of a pass; None outside of workers."""
    try:
        from torch.utils.data import get_worker_info
    except ImportError:
        return None
    worker = get_worker_info()
    return None if worker is None else int(worker.seed) - worker.id
