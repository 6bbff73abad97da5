"""Many small requests at once: a store answers each as late as all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_THREADS = 16


def each(
    function: Callable[[Item], Result], items: Iterable[Item], *, at_once: bool
) -> Iterator[Result]:
    """The results in order; at once where stores are asked, one by one where a disk is.

    >>> list(each(len, ["a", "bc"], at_once=True))
    [1, 2]
    """
    if not at_once:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as threads:
        pending = [threads.submit(function, item) for item in items]
        try:
            yield from (future.result() for future in pending)
        finally:
            for future in pending:
                future.cancel()
