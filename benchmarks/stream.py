"""Streams: packers compared with those of grain in one process, the whole pipeline with the bare
tokenizer, memory over the length of a stream, and states.

`QUIRE_BENCH_SMALL=1` measures a tenth, as a quick test.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import (
    Table,
    best_of,
    best_of_interleaved,
    draw_lengths,
    milliseconds,
    percent,
    ratio,
)
from benchmarks.stream_pipeline import memory, pipeline
from quire.stream import StreamOptions, open_stream, save_state
from quire.stream.batch import BatchMaker
from quire.stream.packers import PACKERS, PackerOptions

TITLE = "Streams"
SCALE = 10 if os.environ.get("QUIRE_BENCH_SMALL") else 1
CAPACITY = 4096
BUFFER = 128
NUM_DOCUMENTS = 12_000 // SCALE
NUM_STATES = 20 // SCALE
STRATEGIES = ("wrapped", "first_fit", "online")
VOCABULARY = 151_936


def run() -> list[Table]:
    return [packers(), pipeline(), memory(), states()]


def packers() -> Table:
    table = Table(
        f"Microseconds per document, and full places, in rows of {CAPACITY:,}",
        ["lengths", "packer", "µs per document", "FirstFit takes", "full places"],
        f"{NUM_DOCUMENTS:,} encoded documents, none longer than a row. quire "
        f"buffers {BUFFER} documents; grain keeps {BUFFER} bins open, which hold several times as "
        "many. quire's time runs to batches of eight rows with tokens, shifted labels, segment and "
        "position ids, grain's to rows with tokens, segment and position ids; the time that grain "
        "needs only to read its source is subtracted. Full places count all rows emitted before "
        "the last flush.",
    )
    for kind in ("web", "chat", "instructions"):
        lengths = np.minimum(draw_lengths(kind, NUM_DOCUMENTS, CAPACITY), CAPACITY)
        documents = _documents(lengths.tolist())
        sides = {**_quire_sides(documents), **_grain_sides(documents)}
        source, *times = best_of_interleaved(
            3, lambda d=documents: _exhaust(_grain_source(d)), *[side for side, _ in sides.values()]
        )
        micros = {
            name: 1e6 * (seconds - (source if "grain" in name else 0)) / NUM_DOCUMENTS
            for name, seconds in zip(sides, times, strict=True)
        }
        for name, (_, share) in sides.items():
            speedup = ratio(micros["grain FirstFit"] / micros[name])
            table.add(kind, name, f"{micros[name]:.1f}", speedup, percent(share(), 2))
    return table


Side = tuple[Callable[[], object], Callable[[], float]]
"""What is timed, and the share of full places that it reaches."""


def _documents(lengths: Sequence[int]) -> list[np.ndarray]:
    ids = np.random.default_rng(0).integers(3, VOCABULARY, sum(lengths), dtype=np.int32)
    return np.split(ids, np.cumsum(lengths)[:-1])


def _quire_sides(documents: list[np.ndarray]) -> dict[str, Side]:
    def share(strategy: str) -> float:
        windows = [window for batch in _windows(strategy, documents) for window in batch]
        return sum(len(window.tokens) for window in windows) / (len(windows) * CAPACITY)

    return {
        f"quire {strategy}": (
            lambda strategy=strategy: _exhaust(_batches(strategy, documents)),
            lambda strategy=strategy: share(strategy),
        )
        for strategy in STRATEGIES
    }


def _windows(strategy: str, documents: list[np.ndarray]) -> Iterator[list]:
    """Windows as they leave, eight at a time, without the last flush."""
    options = PackerOptions(
        window_size=CAPACITY, vocab_size=VOCABULARY, buffer_size=BUFFER, min_tail=2
    )
    packer = PACKERS[strategy](options)
    ready: list = []
    for document in documents:
        ready += packer.add(document)
        while len(ready) >= 8:
            yield ready[:8]
            del ready[:8]


def _batches(strategy: str, documents: list[np.ndarray]) -> Iterator[object]:
    options = StreamOptions(max_length=CAPACITY - 1, batch_size=8, emit_position_ids=True)
    maker = BatchMaker(options)
    return (maker.make(windows, 1) for windows in _windows(strategy, documents))


def _grain_source(documents: list[np.ndarray]):
    import grain.python as grain

    elements = [{"input_ids": document} for document in documents]
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    return grain.MapDataset.source(elements).to_iter_dataset(read_options=options)


def _grain_sides(documents: list[np.ndarray]) -> dict[str, Side]:
    from grain.experimental import (
        BestFitPackIterDataset,
        ConcatThenSplitIterDataset,
        FirstFitPackIterDataset,
    )

    lengths = {"length_struct": {"input_ids": CAPACITY}}
    bins = {**lengths, "num_packing_bins": BUFFER, "shuffle_bins": False}
    source = _grain_source(documents)
    peers = {
        "grain FirstFit": FirstFitPackIterDataset(source, **bins),
        "grain BestFit": BestFitPackIterDataset(source, **bins),
        "grain ConcatThenSplit": ConcatThenSplitIterDataset(source, **lengths),
    }
    return {
        name: (lambda peer=peer: _exhaust(peer), lambda peer=peer: _grain_share(peer))
        for name, peer in peers.items()
    }


def _grain_share(rows: Iterable[dict]) -> float:
    """Of whole rounds of bins: the last one is a flush."""
    filled = [int((row["input_ids_segment_ids"] > 0).sum()) for row in rows]
    filled = filled[: max(1, (len(filled) - 1) // BUFFER) * BUFFER]
    return sum(filled) / (len(filled) * CAPACITY)


def _exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


def states() -> Table:
    table = Table(
        f"States with a buffer of {BUFFER} documents",
        ["packing", "pending tokens", "bytes", "state_dict", "save_state", "and the disk"],
        f"Web lengths, ids below {VOCABULARY:,}, windows of {CAPACITY:,}. The "
        f"maximum over {NUM_STATES} steps of tokens, file size and times, each time the best of 3. "
        "The first two are CPU time; the disk adds two syncs, of the file and of its folder.",
    )
    with tempfile.TemporaryDirectory() as name:
        for strategy in STRATEGIES:
            table.add(strategy, *_state_costs(strategy, Path(name) / "state.json"))
    return table


def _state_costs(strategy: str, file: Path) -> list[str]:
    source = _Encoded(_documents(draw_lengths("web", 4000, CAPACITY, seed=1).tolist()))
    options = {
        "max_length": CAPACITY - 1,
        "batch_size": 8,
        "strategy": strategy,
        "buffer_size": BUFFER,
        "shuffle_buffer_size": 1000,
    }
    costs = []
    with open_stream(source=source, tokenizer=source, **options) as stream:
        for _ in range(NUM_STATES):
            next(stream)
            state = stream.state_dict()
            getting = _processor_time(stream.state_dict)
            saving = _processor_time(lambda state=state: save_state(state, file))
            on_disk = best_of(3, lambda state=state: save_state(state, file))
            pending = stream.ledger.tokens.pending
            costs.append((pending, file.stat().st_size, getting, saving, on_disk))
    tokens, size, *times = [max(column) for column in zip(*costs, strict=True)]
    return [f"{tokens:,}", f"{size:,}", *map(milliseconds, times)]


def _processor_time(function: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


class _Encoded:
    """Documents that are already encoded; each text is its document's number."""

    names = ("memory",)
    bos_token_id, eos_token_id, pad_token_id, vocab_size = None, 1, 0, VOCABULARY

    def __init__(self, documents: list[np.ndarray]) -> None:
        self.documents, self.place = documents, 0

    def open(self, number: int, cursor: int | None) -> _Encoded:
        shard = _Encoded(self.documents)
        shard.place = (cursor or 0) + 0 * number
        return shard

    def next(self) -> str:
        if self.place == len(self.documents):
            raise StopIteration
        self.place += 1
        return str(self.place - 1)

    def cursor(self) -> int:
        return self.place

    def __call__(self, texts: list[str]) -> dict[str, list]:
        return {"input_ids": [self._ids(text) for text in texts]}

    def _ids(self, text: str) -> list[int]:
        return self.documents[int(text)].tolist() if text.isdecimal() else [2]
