"""Corpora of several kinds, each of some twenty partitions, and how they are packed."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import quire
from tests.tokenizer_files import folder_of


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Inputs, and the options to pack them with."""

    folder: Path
    tokenizer: str | None = "byte"
    options: dict[str, Any] = field(default_factory=dict)

    def pack(self, out: Path, **how: Any) -> quire.corpus.PackResult:
        options = {"max_length": 128, "partition_size": 4000, **self.options}
        return quire.pack_corpus([self.folder], out, self.tokenizer, **options, **how)


def texts(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [f"{n} " + "word " * int(chance.lognormvariate(3, 1)) for n in range(count)]


def lines(folder: Path, **options: Any) -> Corpus:
    for part in range(4):
        records = [json.dumps({"text": text}) + "\n" for text in texts(150, part)]
        (folder / f"{part}.jsonl").write_text("".join(records))
    return Corpus(folder=folder, options=options)


def compressed(folder: Path) -> Corpus:
    """Partitions that are cut into several shards while they are read, and records that are bad."""
    for part in range(3):
        records = [json.dumps({"text": text}) + "\n" for text in texts(150, part)]
        data = "".join([*records, '{"text": 5}\n']).encode()
        (folder / f"{part}.jsonl.gz").write_bytes(gzip.compress(data, mtime=0))
    (folder / "z.txt").write_text("One document, a file of its own.")
    return Corpus(folder=folder, options={"max_bad_records": 3})


def tokens(folder: Path) -> Corpus:
    """Tables of tokens, with a parallel column."""
    chance = random.Random(7)
    for part in range(2):
        documents = [[chance.randrange(99)] * chance.randint(1, 200) for _ in range(80)]
        columns = {"input_ids": documents, "labels": documents}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet", row_group_size=10)
    return Corpus(folder=folder, tokenizer=None, options={"pretokenized": True})


def indexed(folder: Path) -> Corpus:
    return lines(folder, index_only=True, strategy="wrapped")


def qwen3(folder: Path) -> Corpus:
    """A tokenizer that is sent to the nodes: the real one of ten megabytes, if present."""
    real = folder_of("qwen3")
    tokenizer = str(real if real.is_dir() else folder_of("small-qwen3"))
    return replace(lines(folder), tokenizer=tokenizer, options={"partition_size": 12_000})


KINDS = {
    "lines": lines,
    "compressed": compressed,
    "tokens": tokens,
    "indexed": indexed,
    "qwen3": qwen3,
}
