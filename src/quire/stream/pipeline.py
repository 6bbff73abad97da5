"""`Stream`: an iterator of batches that can be left and taken up again at any step."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from quire.config import flat_options
from quire.errors import InvalidState
from quire.ledger import Ledger
from quire.stream.batch import Batch
from quire.stream.options import StreamConfig
from quire.stream.prefetch import Prefetcher
from quire.stream.producer import Producer, Snapshot
from quire.stream.state import State, opened, read_count, sealed

_MAY_DIFFER = frozenset(
    f"data.{name}"
    for name in (
        "grain_prefetch",
        "num_workers",
        "max_retries",
        "retry_delay_sec",
        "state_update_interval",
        "max_bad_records",
    )
)
"""Options that cost time or mend faults, and change no batch."""
_PATTERNS = re.compile(r"data\.(sources\[\d+\]\.)?files")
"""Options that name files, which have many names: the place in a source tells which they are."""


class Stream:
    """Batches of one rank; made by `open_stream`. Close it, or use it in a ``with``.

    `get_state` tells of the last batch that was delivered, whatever was made ahead; `set_state`
    continues behind that batch, bit for bit.
    """

    def __init__(
        self,
        config: StreamConfig,
        producer: Producer,
        *,
        tokenizer_digest: str,
        close: Callable[[], None],
    ) -> None:
        self.config = config
        """The options with the vocabulary's size and special ids filled in."""
        self._producer, self._close = producer, close
        self._tokenizer_digest = tokenizer_digest
        self._options = _decisive(config)
        depth = config.data.grain_prefetch
        self._prefetcher = Prefetcher(self._make, depth) if depth else None
        self._last: Snapshot | None = producer.snapshot()
        self._is_torn = False
        self._began, self._step_at_start = time.monotonic(), 0
        self._tokens_at_start = 0

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        self._mend()
        before = self._snapshot()
        try:
            return self._next_batch()
        except StopIteration:
            self._warn_if_nothing_came()
            raise
        except Exception:
            raise
        except BaseException:  # Ctrl-C strikes anywhere, also between a document and its packer
            self._last, self._is_torn = before, True
            raise

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and processes of this stream."""
        if self._prefetcher is not None:
            # What was made ahead is forgotten: whoever asks again goes on behind the last batch.
            self._last, self._is_torn = self._snapshot(), True
            self._prefetcher.stop()
        self._close()

    @property
    def ledger(self) -> Ledger:
        """What came in, went out, was dropped and waits, in the streams that this rank runs."""
        return self._snapshot().ledger()

    def stats(self) -> dict[str, float]:
        """Where the stream stands, how full its windows are, and how fast it was since it began."""
        snapshot = self._snapshot()
        documents, tokens = snapshot.ledger().documents, snapshot.ledger().tokens
        delivered = tokens.emitted + tokens.special
        places = delivered + tokens.padding
        seconds = max(time.monotonic() - self._began, 1e-9)
        return {
            "step": snapshot.step,
            "epoch": snapshot.epoch,
            "documents": documents.emitted,
            "tokens": delivered,
            "utilization": delivered / places if places else 0.0,
            "pending_documents": documents.pending,
            "pending_tokens": tokens.pending,
            "seconds": seconds,
            "batches_per_second": (snapshot.step - self._step_at_start) / seconds,
            "tokens_per_second": (delivered - self._tokens_at_start) / seconds,
        }

    def get_state(self) -> State:
        """The state behind the last batch that was delivered, in JSON."""
        return self.freeze()()

    def freeze(self) -> Callable[[], State]:
        """A function that gives the state of this moment, however far the stream goes meanwhile.

        To freeze is cheap; the state becomes JSON when the function is called.
        """
        return partial(self._state_of, self._snapshot())

    def _state_of(self, snapshot: Snapshot) -> State:
        return sealed(
            {
                "step": snapshot.step,
                "options": dict(self._options),
                "tokenizer": self._tokenizer_digest,
                "streams": snapshot.streams(),
            }
        )

    def set_state(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue behind the batch of a state: this rank's, or all ranks' in a list."""
        step, streams = self._merged(state)
        before = self._snapshot()
        if self._prefetcher is not None:
            self._prefetcher.stop()
        self._last, self._is_torn = before, True
        self._producer.restore(step, streams)
        self._is_torn = False
        self._last = self._producer.snapshot()
        self._began, self._step_at_start = time.monotonic(), step
        tokens = self._last.ledger().tokens
        self._tokens_at_start = tokens.emitted + tokens.special

    def _next_batch(self) -> Batch:
        if self._prefetcher is None:
            self._last = None  # taken when it is asked for
            return self._producer.next()
        try:
            batch, self._last = self._prefetcher.next()
        except StopIteration:
            self._last = None  # what the end drops is counted
            raise
        return batch

    def _warn_if_nothing_came(self) -> None:
        snapshot = self._snapshot()
        if not snapshot.step:
            documents = snapshot.ledger().documents
            reasons = [f"{count} left out as {why}" for why, count in documents.dropped.items()]
            why = ", ".join(reasons) or "none is left out"
            warnings.warn(
                f"the stream ends without a batch: of {documents.input} documents {why}; look at "
                "its ledger, and at data.last_batch where they fill no batch",
                stacklevel=3,
            )

    def _mend(self) -> None:
        """Behind a state refused halfway, or an interrupt, go back to where the stream stood."""
        if self._is_torn:
            before = self._snapshot()
            if self._prefetcher is not None:
                self._prefetcher.stop()
            self._producer.restore(before.step, before.streams())
            self._is_torn = False

    def _make(self) -> tuple[Batch, Snapshot]:
        return self._producer.next(), self._producer.snapshot()

    def _snapshot(self) -> Snapshot:
        if self._last is None:
            self._last = self._producer.snapshot()
        return self._last

    def _merged(
        self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> tuple[int, dict[str, State]]:
        """The step and all streams of the states, if they belong together and to this stream."""
        states = [opened(one) for one in (state if isinstance(state, list | tuple) else [state])]
        if not states:
            raise InvalidState("there is no state in the list; pass at least one rank's")
        for one in states:
            self._require_same_options(one)
        steps = {read_count("step", one["step"]) for one in states}
        if len(steps) > 1:
            raise InvalidState(
                f"the ranks' states are of the steps {', '.join(map(str, sorted(steps)))} but must "
                "be of one; use states that were saved behind the same batch"
            )
        streams: dict[str, State] = {}
        for one in states:
            if not isinstance(one["streams"], Mapping):
                raise InvalidState("streams must be a dict of stream states")
            streams |= one["streams"]
        return steps.pop(), streams

    def _require_same_options(self, state: State) -> None:
        mine, theirs = self._options, state["options"]
        if not isinstance(theirs, Mapping):
            raise InvalidState(f"options are {type(theirs).__name__} but must be a dict")
        none = object()
        differing = [
            f"{name} (saved {theirs.get(name, 'unset')!r}, now {mine.get(name, 'unset')!r})"
            for name in sorted({*mine, *theirs})
            if mine.get(name, none) != theirs.get(name, none) and not _PATTERNS.fullmatch(name)
        ]
        if state["tokenizer"] != self._tokenizer_digest:
            differing.append("data.tokenizer (its files, its special ids or what it does)")
        if differing:
            raise InvalidState(
                f"the state was saved under other options: {'; '.join(differing)}; restore them, "
                "or start a new stream"
            )


def _decisive(config: StreamConfig) -> dict[str, Any]:
    """The options that decide batches, by name, as they come back from JSON."""
    flat = flat_options(config)
    kept = {name: value for name, value in flat.items() if name not in _MAY_DIFFER}
    plain: dict[str, Any] = json.loads(json.dumps(kept))
    return plain
