"""What the tests of the adapters share: one small stream, and how batches are compared.

Workers import this module, so it imports no more than they need.
"""

from __future__ import annotations

import json

from quire.stream import open_stream
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    key,
    shards_of,
    take,
    unique_documents,
)

SHARDS = shards_of(unique_documents(LENGTHS), 3)
MODES = {
    "sequential": {},
    "bin": {"packing_buffer_docs": 5},
    "online": {"packing_buffer_docs": 6},
}


def arguments(source=None, **data):
    """The arguments of `open_stream`; keywords are options of ``data``."""
    options = config(**{"shuffle_buffer_size": 4, "repeat": False, **data})
    return {"config": options, "source": source or ListSource(SHARDS), "tokenizer": Numbers()}


def stream(**data):
    return open_stream(**arguments(**data))


def batch_keys(**data):
    """Every batch of the stream, for comparison."""
    with stream(**data) as batches:
        return [tuple(sorted(key(batch))) for batch in take(batches)]


def through_bytes(state):
    return json.loads(json.dumps(state).encode())


def failing():
    """A source that fails once, at the fifth record of its first shard."""
    return ListSource(SHARDS, fail_at={(0, 4): 1})


def byte_config(path):
    """A self-contained config that any process can open."""
    data = {"backend": "files", "files": [str(path)], "tokenizer": {"kind": "byte"}}
    more = {"repeat": False, "shuffle_buffer_size": 4, "packing_mode": "online"}
    train = {"seq_len": 32, "batch_size": 2, "grad_accum": 2}
    return {"data": {**data, **more}, "train": train}


def write_texts(path, repeats=1):
    lengths = [length for length in LENGTHS * repeats if length]
    path.write_text("".join(json.dumps({"text": "ab" * length}) + "\n" for length in lengths))


def tensor_keys(batches):
    """Batches of the torch adapter, for comparison."""
    return [
        [[name, value if name == "use_cache" else value.tolist()] for name, value in batch.items()]
        for batch in batches
    ]
