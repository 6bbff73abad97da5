"""Things made ahead in a thread, in order, errors included."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Prefetcher(Generic[Made]):
    """Calls a method in a thread, up to ``depth`` times ahead of those who ask.

    An exception (StopIteration is one) comes out where it happened in the order, and ends the
    thread; whoever asks again starts it anew. The method's object is held weakly: when it is
    dropped without `stop`, the thread ends, too.
    """

    def __init__(self, make: Callable[[], Made], depth: int) -> None:
        self._make: weakref.WeakMethod[Callable[[], Made]] = weakref.WeakMethod(make)
        self._depth = depth
        self._thread: threading.Thread | None = None

    def next(self) -> Made:
        """What the method gave next, or the exception that it raised."""
        if self._thread is None:
            self._start()
        made, error = self._queue.get()
        if error is not None:
            self.stop()
            raise error
        self._free.release()
        return made  # type: ignore[return-value]

    def stop(self) -> None:
        """End the thread and forget what was made ahead."""
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
    free.release()  # the thread may be waiting for a place


def _run(
    make: weakref.WeakMethod[Callable[[], Made]],
    queue: SimpleQueue[tuple[Made | None, BaseException | None]],
    free: threading.Semaphore,
    stopping: threading.Event,
) -> None:
    """Nothing of the object is held while the thread waits, or it would never be dropped."""
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
