"""Streams: every packer with the options that change batches, states and the adapters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from quire.stream import TorchBatches, open_stream
from tests.guard.plans import Case
from tests.stream.adapters import arguments
from tests.stream.inputs import take

PACKERS: dict[str, dict[str, object]] = {
    "sequential": {},
    "bin": {"packing_buffer_docs": 5},
    "online": {"packing_buffer_docs": 6},
}
OPTIONS: dict[str, dict[str, object]] = {
    "plain": {},
    "ordered": {"shuffle": False},
    "repeated": {"repeat": True},
    "boundary_loss": {"mask_boundary_loss": False, "train_on_eos": False},
    "positions": {"emit_position_ids": True},
    "cut": {"tokenizer": {"max_doc_tokens": 6, "add_bos": False}},
    "dropped_tail": {"last_batch": "drop"},
}


def cases() -> Iterator[tuple[str, Case]]:
    for mode, packer in PACKERS.items():
        for name, options in OPTIONS.items():
            more = {"packing_mode": mode, **packer, **options}
            yield f"stream/{mode}/{name}", partial(_stream, more)
        yield f"stream/{mode}/torch", partial(_torch, {"packing_mode": mode, **packer})
    yield "stream/ranks", partial(_stream, {"num_streams": 2}, world_size=2, rank=1)


def _stream(options: dict[str, object], _folder: Path, **ranks: int) -> dict[str, object]:
    with open_stream(**arguments(**options), **ranks) as stream:
        first = take(stream, 2)
        state = json.loads(json.dumps(stream.get_state()))
        rest = take(stream, 4)
        ledger = stream.ledger
    batches = [batch.to_dict() for batch in first + rest]
    return {"batches": batches, "state": state, "ledger": ledger}


def _torch(options: dict[str, object], _folder: Path) -> dict[str, object]:
    batches = TorchBatches(**arguments(**options))
    return {"batches": [dict(batch) for batch in batches], "state": batches.state_dict()}
