"""Saved states: damaged, and forged with a matching checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from quire.errors import QuireError
from quire.packed import PackedDataset
from quire.plan import OnlinePacker
from quire.stream import Stream, latest_state, load_state, open_stream
from quire.stream.workers import WorkerBatches
from tests.corpus.corpora import jsonl, pack, texts
from tests.fuzz.mutation import mutated_bytes, mutated_json
from tests.fuzz.target import Subject, Target, by_name
from tests.stream.inputs import LENGTHS, ListSource, Numbers, config, shards_of, unique_documents


def resealed(state: Any) -> Any:
    """The state with the right checksum, which a forger can compute."""
    if not isinstance(state, dict) or "checksum" not in state:
        return state
    body = {key: value for key, value in state.items() if key != "checksum"}
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError):
        return state
    return {**body, "checksum": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}


def of_json(seeds: Sequence[str], share_sealed: float = 0.95) -> Callable[[Random], Any]:
    """A function that makes changed states, most of them with a matching checksum."""

    def make(choose: Random) -> Any:
        state = mutated_json(choose, choose.choice(seeds))
        return resealed(state) if choose.random() < share_sealed else state

    return make


def _stream(mode: str, **options: object) -> Stream:
    more = {"packing_mode": mode, "shuffle_buffer_size": 4, "packing_buffer_docs": 5, **options}
    source = ListSource(shards_of(unique_documents(LENGTHS), 2))
    return open_stream(config(seq_len=6, **more), source=source, tokenizer=Numbers())


def _states_of(stream: Stream, steps: Sequence[int]) -> list[str]:
    found = []
    for step in range(max(steps) + 1):
        if step in steps:
            found.append(json.dumps(stream.get_state()))
        next(stream)
    return found


def _stream_state(_folder: Path) -> Subject:
    """A state of a running stream: a refused state does not change it."""
    makers, streams, seeds = [], [], []
    for mode in ("sequential", "bin", "online"):
        stream = _stream(mode)
        seeds.append(_states_of(stream, (0, 3, 8)))
        streams.append(stream)
        makers.append(of_json(seeds[-1]))

    def make(choose: Random) -> tuple[int, Any]:
        which = choose.randrange(len(streams))
        return which, makers[which](choose)

    def read(given: tuple[int, Any]) -> None:
        which, state = given
        stream, home = streams[which], json.loads(seeds[which][1])
        stream.set_state(home)
        try:
            stream.set_state(state)
        except QuireError:
            assert stream.get_state() == home, "a refused state moved the stream"
            next(stream)
            raise
        for _ in range(3):
            next(stream)
        stream.ledger.check()

    return Subject(make=make, read=read)


def _stream_state_file(folder: Path) -> Subject:
    seeds = [
        s.encode() for mode in ("bin", "sequential") for s in _states_of(_stream(mode), (2, 7))
    ]
    file = folder / "state.json"

    def read(data: bytes) -> None:
        file.write_bytes(data)
        load_state(file)

    return Subject(
        make=lambda choose: mutated_bytes(choose, choose.choice(seeds), seeds), read=read
    )


def _batches_state(_folder: Path) -> Subject:
    """A state of a torch or grain reader, and what a loader wraps around it."""
    batches = WorkerBatches(lambda: _stream("bin", grad_accum=2), pieces=2)
    seeds = []
    for _ in range(5):
        seeds.append(json.dumps(batches.state_dict()))
        next(batches)
    home = json.loads(seeds[1])

    def read(state: Any) -> None:
        batches.load_state_dict(home)
        if isinstance(state, dict) and state.get("wrapped"):
            latest_state(state)
        batches.load_state_dict(state)
        next(batches)

    def make(choose: Random) -> Any:
        state = mutated_json(choose, choose.choice(seeds))
        if isinstance(state, dict) and choose.random() < 0.9:
            state["stream"] = resealed(state.get("stream"))
            state["checksum"] = _batches_checksum(state)
        return {"wrapped": [state]} if choose.random() < 0.2 else state

    return Subject(make=make, read=read)


def _batches_checksum(state: dict[str, Any]) -> str | None:
    part, stream = state.get("part"), state.get("stream")
    whose = stream.get("checksum") if isinstance(stream, dict) else None
    listed = list(part) if isinstance(part, list) else [part]
    told = [*listed, state.get("pieces"), state.get("first"), state.get("used"), whose]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _loader_state(folder: Path) -> Subject:
    pack(jsonl(folder / "a.jsonl", texts(60)), folder / "out", partition_size=2000)
    dataset = PackedDataset(folder / "out")
    loader = dataset.loader(8, seed=3)
    seeds = [json.dumps(loader.state_dict()) for _ in zip(range(3), loader, strict=False)]

    def read(state: Any) -> None:
        loader.load_state_dict(state)
        assert json.loads(json.dumps(state))["version"] is not True, "true is no version"
        if loader.epoch < 100:
            loader.rows(loader.epoch, loader.step)

    return Subject(make=of_json(seeds), read=read)


def _online_state(_folder: Path) -> Subject:
    seeds = []
    for options in ({}, {"max_documents_per_row": 3}, {"align": 4}):
        packer: OnlinePacker[int | str] = OnlinePacker(32, 6, **options)  # type: ignore[arg-type]
        for number in range(23):
            packer.add(number if number % 2 else str(number), number % 9 + 1)
        seeds.append(json.dumps(packer.state_dict()))

    def read(state: Any) -> None:
        given = state if isinstance(state, dict) else {}
        options = {name: given.get(name) for name in ("max_documents_per_row", "align")}
        packer: OnlinePacker[int | str] = OnlinePacker(32, 6, **options)
        packer.load_state_dict(state)
        waiting = packer.num_waiting
        rows = packer.add("more", 1) + packer.flush()
        assert sum(map(len, rows)) == waiting + 1, "a document was lost"

    return Subject(make=of_json(seeds), read=read)


TARGETS = by_name(
    Target(name="stream_state", prepare=_stream_state),
    Target(name="stream_state_file", prepare=_stream_state_file),
    Target(name="batches_state", prepare=_batches_state),
    Target(name="loader_state", prepare=_loader_state),
    Target(name="online_state", prepare=_online_state),
)
