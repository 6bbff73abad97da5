"""Small sources and streams whose every token is known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.stream import Batch, Stream, StreamOptions

BOS, EOS, PAD = 1, 2, 0


class Numbers:
    """A tokenizer of numbers: the text is the tokens, so that every token can be unique."""

    bos_token_id, eos_token_id, pad_token_id = BOS, EOS, PAD
    vocab_size = 1 << 20

    def __call__(self, texts: list[str]) -> dict[str, list[list[int]]]:
        return {"input_ids": [[_number(word) for word in text.split()] for text in texts]}


def _number(word: str) -> int:
    return int(word) if word.isdecimal() else len(word)


def text_of(tokens: Sequence[int]) -> str:
    return " ".join(map(str, tokens))


def unique_documents(lengths: Sequence[int]) -> list[list[int]]:
    """Documents of these lengths in which no token comes twice."""
    ends = np.cumsum(lengths) + 10
    return [list(range(end - length, end)) for end, length in zip(ends, lengths, strict=True)]


LENGTHS = [5, 3, 0, 9, 1, 14, 2, 6, 30, 4, 4, 7, 1, 12, 3, 8, 2, 11, 5, 5, 21, 6, 3]


@dataclass
class ListSource:
    """Shards of documents in memory; the cursor is a record number."""

    shards: list[list[list[int]]]
    fail_at: dict[tuple[int, int], int] = field(default_factory=dict)
    """(shard, record) -> how many times in a row reading it fails."""
    opened: list[tuple[int, object]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [f"shard-{number}" for number in range(len(self.shards))]

    def open(self, number: int, cursor: object | None) -> _ListShard:
        self.opened.append((number, cursor))
        return _ListShard(self, number, int(cursor or 0))


class _ListShard:
    def __init__(self, source: ListSource, number: int, start: int) -> None:
        self.source, self.number, self.place = source, number, start
        self.records = self._generate(start)

    def _generate(self, start: int) -> Iterator[str]:
        documents = self.source.shards[self.number]
        for record in range(start, len(documents)):
            left = self.source.fail_at.get((self.number, record), 0)
            if left:
                self.source.fail_at[self.number, record] = left - 1
                raise ConnectionResetError(f"record {record} of shard {self.number}")
            yield text_of(documents[record])

    def next(self) -> str:
        record = next(self.records)  # a generator that raised is dead: StopIteration from then on
        self.place += 1
        return record

    def cursor(self) -> int:
        return self.place


def shards_of(documents: list[list[int]], count: int) -> list[list[list[int]]]:
    return [documents[number::count] for number in range(count)]


def write_jsonl(folder: Path, shards: list[list[list[int]]]) -> str:
    for number, documents in enumerate(shards):
        lines = [json.dumps({"text": text_of(document)}) + "\n" for document in documents]
        (folder / f"part-{number}.jsonl").write_text("".join(lines))
    return str(folder / "part-*.jsonl")


def write_parquet(folder: Path, shards: list[list[list[int]]], row_group_size: int = 4) -> str:
    for number, documents in enumerate(shards):
        table = pa.table({"text": pa.array([text_of(d) for d in documents], pa.string())})
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=row_group_size)
    return str(folder / "part-*.parquet")


def config(seq_len: int = 8, batch_size: int = 2, **data: object) -> dict[str, object]:
    """A config for the tokenizer of numbers; keywords are options of ``data``."""
    grad_accum = data.pop("grad_accum", 1)
    tokenizer = {"add_bos": True, "add_eos": True, **data.pop("tokenizer", {})}
    return {
        "data": {"retry_delay_sec": 0.0, **data, "tokenizer": tokenizer},
        "train": {"seq_len": seq_len, "batch_size": batch_size, "grad_accum": grad_accum},
    }


def options_of(**more: object) -> StreamOptions:
    """Options of a small stream, with quire's names."""
    return StreamOptions(**{"max_length": 8, "batch_size": 2, "retry_delay_sec": 0.0, **more})


def take(stream: Stream, count: int | None = None) -> list[Batch]:
    """The next batches; all of them if no count is given."""
    batches = []
    while count is None or len(batches) < count:
        try:
            batches.append(next(stream))
        except StopIteration:
            break
    return batches


def same(one: Sequence[Batch], other: Sequence[Batch]) -> bool:
    """Whether batches are equal, bit for bit."""
    return len(one) == len(other) and all(key(a) == key(b) for a, b in zip(one, other, strict=True))


def key(batch: Batch) -> tuple[object, ...]:
    return tuple((n, a.dtype.str, a.shape, a.tobytes()) for n, a in batch.to_dict().items())


def digest(batch: Batch) -> str:
    """Equal only for equal batches; can be sent between processes."""
    return hashlib.sha256(repr(key(batch)).encode()).hexdigest()


def windows_of(batch: Batch) -> list[list[int]]:
    """Every row with the token after it, as far as labels show it; without padding."""
    rows = batch.input_ids.reshape(-1, batch.input_ids.shape[-1])
    masks = batch.attention_mask.reshape(rows.shape)
    return [row[mask].tolist() for row, mask in zip(rows, masks, strict=True)]
