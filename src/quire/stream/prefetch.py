"""Things made ahead in a thread, in order, errors included."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

Made = TypeVar("Made")
_POLL_SECONDS = 0.05


class Prefetcher(Generic[Made]):
    """Calls a function in a thread, up to ``depth`` times ahead of those who ask.

    An exception (StopIteration is one) comes out where it happened in the order, and ends the
    thread; whoever asks again starts it anew.
    """

    def __init__(self, make: Callable[[], Made], depth: int) -> None:
        self._make, self._depth = make, depth
        self._thread: threading.Thread | None = None

    def next(self) -> Made:
        """What the function gave next, or the exception that it raised."""
        if self._thread is None:
            self._start()
        made, error = self._queue.get()
        if error is not None:
            self.stop()
            raise error
        return made  # type: ignore[return-value]

    def stop(self) -> None:
        """End the thread and forget what was made ahead."""
        if self._thread is None:
            return
        self._stopping.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except Empty:
                self._thread.join(_POLL_SECONDS)
        self._thread = None

    def _start(self) -> None:
        self._queue: Queue[tuple[Made | None, BaseException | None]] = Queue(self._depth)
        self._stopping = threading.Event()
        arguments = (self._make, self._queue, self._stopping)
        self._thread = threading.Thread(
            target=_run, args=arguments, name="quire-prefetch", daemon=True
        )
        self._thread.start()


def _run(
    make: Callable[[], Made],
    queue: Queue[tuple[Made | None, BaseException | None]],
    stopping: threading.Event,
) -> None:
    while not stopping.is_set():
        try:
            item: tuple[Made | None, BaseException | None] = (make(), None)
        except BaseException as error:
            item = (None, error)
        while not stopping.is_set():
            try:
                queue.put(item, timeout=_POLL_SECONDS)
                break
            except Full:
                continue
        if item[1] is not None:
            return
