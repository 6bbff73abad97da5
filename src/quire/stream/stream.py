"""`Stream`: an iterator of batches that can stop and resume after any batch."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from functools import partial
from typing import Any, TypeAlias

from quire.errors import InvalidOption, InvalidState
from quire.ledger import Ledger
from quire.stream.batch import Batch
from quire.stream.chomp import StreamConfig, resolved_config
from quire.stream.options import StreamOptions, default_of
from quire.stream.pipeline import Pipeline, Snapshot
from quire.stream.prefetch import Prefetcher
from quire.stream.state import ENGINE, State, opened, read_count, sealed

Saved: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The state of one rank, or a list of all ranks' states."""

_FILES = re.compile(r"(sources\[\d+\]\.)?files")
"""A file has many names, and the cursor knows which one is meant; states show them to readers."""


class Stream:
    """The batches of one rank; made by `open_stream`. Close it, or use it in a ``with``.

    `state_dict` describes the last batch that was delivered, whatever was made ahead;
    `load_state_dict` continues after that batch, bit for bit.
    """

    def __init__(
        self,
        options: StreamOptions,
        pipeline: Pipeline,
        *,
        tokenizer_digest: str,
        engine: Callable[[], dict[str, object] | None],
        close: Callable[[], None],
        config: StreamConfig | None = None,
    ) -> None:
        self.options = options
        """The options, with everything that was left to the tokenizer filled in."""
        self._config, self._pipeline, self._close = config, pipeline, close
        self._tokenizer_digest, self._engine = tokenizer_digest, engine
        self._prefetcher = Prefetcher(self._make, options.prefetch) if options.prefetch else None
        self._last: Snapshot | None = None
        """The position after the last delivered batch; None: that of the pipeline itself."""
        self._is_torn = False
        self._began, self._first_step, self._first_tokens = time.monotonic(), 0, 0

    @property
    def config(self) -> StreamConfig:
        """The config that the stream was opened with, with everything filled in."""
        return require_config(self._config, self.options)

    def __repr__(self) -> str:
        options = self.options
        shape = f"[{options.grad_accum}, {options.batch_size}, {options.max_length}]"
        return f"Stream(batches {shape}, {options.strategy}, seed={options.seed})"

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        self._repair()
        before = self._snapshot()
        try:
            return self._next_batch()
        except StopIteration:
            if not before.step:
                self._warn_of_no_batch()
            raise
        except Exception:
            raise
        except BaseException:  # Ctrl-C comes anywhere, also between a document and its packer
            self._last, self._is_torn = before, True
            raise

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and processes of this stream."""
        if self._prefetcher is not None:
            # What was made ahead is discarded: the next batch follows the last delivered one.
            self._last, self._is_torn = self._snapshot(), True
            self._prefetcher.stop()
        self._close()

    @property
    def ledger(self) -> Ledger:
        """What came in, went out, was dropped and is pending, in the streams of this rank."""
        return self._snapshot().ledger()

    def stats(self) -> dict[str, Any]:
        """Position, utilization of the windows, and throughput since the start or last resume.

        ``sources`` has, for each source, its tokens so far, their share, and how many times it was
        read to its end, so how often its documents were repeated, in the streams of this rank.
        """
        snapshot = self._snapshot()
        ledger = snapshot.ledger()
        documents, tokens = ledger.documents, ledger.tokens
        delivered = tokens.emitted + tokens.special
        capacity = delivered + tokens.padding
        seconds = max(time.monotonic() - self._began, 1e-9)
        return {
            "step": snapshot.step,
            "epoch": snapshot.epoch,
            "documents": documents.emitted,
            "tokens": delivered,
            "utilization": delivered / capacity if capacity else 0.0,
            "pending_documents": documents.pending,
            "pending_tokens": tokens.pending,
            "seconds": seconds,
            "batches_per_second": (snapshot.step - self._first_step) / seconds,
            "tokens_per_second": (delivered - self._first_tokens) / seconds,
            **({} if tokens.trained is None else {"trained_tokens": tokens.trained}),
            "sources": self._sources(snapshot),
        }

    def _sources(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        named = self.options.sources or (self.options,)
        mixtures = [stream.mixture for stream in snapshot.streams.values()]
        taken = [sum(mixture["taken"][n] for mixture in mixtures) for n in range(len(named))]
        return [
            {
                "source": source.title,
                "tokens": taken[number],
                "share": taken[number] / max(1, sum(taken)),
                "epochs": min(mixture["sources"][number]["epoch"] for mixture in mixtures),
            }
            for number, source in enumerate(named)
        ]

    def state_dict(self) -> State:
        """The state after the last batch that was delivered, in JSON."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], State]:
        """A cheap function that returns the current state, even after the stream has moved on."""
        return partial(self._state_of, self._snapshot())

    def load_state_dict(self, state: Saved) -> None:
        """Continue after the batch of a state: this rank's, or a list of all ranks' states."""
        step, streams = self._merged(state)
        before = self._snapshot()
        if self._prefetcher is not None:
            self._prefetcher.stop()
        self._last, self._is_torn = before, True
        self._pipeline.load_state_dict(step, streams)
        self._is_torn = False
        self._last = self._pipeline.snapshot()
        tokens = self._last.ledger().tokens
        self._began, self._first_step = time.monotonic(), step
        self._first_tokens = tokens.emitted + tokens.special

    get_state, set_state = state_dict, load_state_dict

    def _state_of(self, snapshot: Snapshot) -> State:
        body = {
            "step": snapshot.step,
            "options": self.options.decisive(),
            "tokenizer": self._tokenizer_digest,
            "streams": snapshot.state_dict(),
        }
        engine = self._engine()
        return sealed(body if engine is None else {**body, ENGINE: engine})

    def _next_batch(self) -> Batch:
        if self._prefetcher is None:
            self._last = None
            return self._pipeline.next()
        try:
            batch, self._last = self._prefetcher.next()
        except StopIteration:
            self._last = None  # what was dropped at the end is counted
            raise
        return batch

    def _warn_of_no_batch(self) -> None:
        documents = self.ledger.documents
        reasons = [f"{count} dropped as {why}" for why, count in documents.dropped.items()]
        warnings.warn(
            f"the stream ended without a batch: of {documents.input} documents, "
            f"{', '.join(reasons) or 'none was dropped'}; see its ledger, and "
            f"{self.options.name('last_batch')} if they do not fill a batch",
            stacklevel=3,
        )

    def _repair(self) -> None:
        """After a state that was refused halfway, or an interrupt, return to the last batch."""
        if self._is_torn:
            before = self._snapshot()
            if self._prefetcher is not None:
                self._prefetcher.stop()
            self._pipeline.load_state_dict(before.step, before.state_dict())
            self._is_torn = False

    def _make(self) -> tuple[Batch, Snapshot]:
        return self._pipeline.next(), self._pipeline.snapshot()

    def _snapshot(self) -> Snapshot:
        if self._last is None:
            self._last = self._pipeline.snapshot()
        return self._last

    def _merged(self, state: Saved) -> tuple[int, dict[str, State]]:
        """The step and all streams of the states, if they fit each other and this stream."""
        states = [opened(one) for one in (state if isinstance(state, list | tuple) else [state])]
        if not states:
            raise InvalidState("the list has no state; pass at least one rank's")
        for one in states:
            self._require_same_options(one)
        steps = {read_count("step", one["step"]) for one in states}
        if len(steps) > 1:
            raise InvalidState(
                f"the ranks' states are of the steps {', '.join(map(str, sorted(steps)))} but must "
                "be of the same one; use states that were saved after the same batch"
            )
        streams: dict[str, State] = {}
        for one in states:
            if not isinstance(one["streams"], Mapping):
                raise InvalidState("streams must be a dict of stream states")
            streams |= one["streams"]
        return steps.pop(), streams

    def _require_same_options(self, state: State) -> None:
        mine, recorded = self.options.decisive(), state["options"]
        if not isinstance(recorded, Mapping):
            raise InvalidState(f"options are {type(recorded).__name__} but must be a dict")
        theirs = {str(name): value for name, value in recorded.items()}
        saved = {name: theirs.get(name, default_of(name)) for name in {*mine, *theirs}}
        now = {name: mine.get(name, default_of(name)) for name in saved}
        differing = [
            f"{self.options.name(name)} (saved {_shown(saved[name])}, now {_shown(now[name])})"
            for name in sorted(saved)
            if saved[name] != now[name] and not _FILES.fullmatch(name)
        ]
        if state["tokenizer"] != self._tokenizer_digest:
            differing.append("the tokenizer (its files, its special ids or its tokens)")
        if differing:
            raise InvalidState(
                f"the state was saved with other options: {'; '.join(differing)}; restore them, or "
                "start a new stream"
            )


def _shown(value: object) -> str:
    return "unset" if value is MISSING else repr(value)


def require_config(config: StreamConfig | None, options: StreamOptions) -> StreamConfig:
    """The config, if there is one, with what the options have from the tokenizer filled in."""
    if config is None:
        raise InvalidOption("the stream was opened with keywords, not with a config; use `options`")
    return resolved_config(config, options)
