"""A thread that makes results ahead, in order, errors included."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Prefetcher(Generic[Made]):
    """Calls a method in a thread, up to ``depth`` times ahead of the consumer.

    An exception (also StopIteration) is raised at its place in the order and ends the thread; the
    next call of `next` starts a new one. The method's object is referenced weakly: if it is
    discarded without `stop`, the thread ends as well.
    """

    def __init__(self, make: Callable[[], Made], depth: int) -> None:
        self._make: weakref.WeakMethod[Callable[[], Made]] = weakref.WeakMethod(make)
        self._depth = depth
        self._thread: threading.Thread | None = None

    def next(self) -> Made:
        """The next result of the method, or the exception that it raised."""
        if self._thread is None:
            self._start()
        made, error = self._queue.get()
        if error is not None:
            self.stop()
            raise error
        self._free.release()
        return made  # type: ignore[return-value]

    def stop(self) -> None:
        """End the thread and discard what was made ahead."""
        if self._thread is None:
            return
        self._end()
        self._thread.join()
        self._thread = None

    def _start(self) -> None:
        self._queue: SimpleQueue[tuple[Made | None, BaseException | None]] = SimpleQueue()
        self._free, stopping = threading.Semaphore(self._depth), threading.Event()
        self._end = weakref.finalize(self, _end, self._free, stopping)
        arguments = (self._make, self._queue, self._free, stopping)
        self._thread = threading.Thread(
            target=_run, args=arguments, name="quire-prefetch", daemon=True
        )
        self._thread.start()


def _end(free: threading.Semaphore, stopping: threading.Event) -> None:
    stopping.set()
    free.release()  # the thread may be waiting for a free slot


def _run(
    make: weakref.WeakMethod[Callable[[], Made]],
    queue: SimpleQueue[tuple[Made | None, BaseException | None]],
    free: threading.Semaphore,
    stopping: threading.Event,
) -> None:
    """Make results without a reference to the object while waiting, so that it can be freed."""
    while free.acquire() and not stopping.is_set():
        made, error = _try(make())
        queue.put((made, error))
        if error is not None:
            return
        del made


def _try(make: Callable[[], Made] | None) -> tuple[Made | None, BaseException | None]:
    try:
        return (None if make is None else make()), None
    except BaseException as error:
        return None, error
