"""Texts and tokens through blocks, `pack_dataset` and `pack_corpus`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

import quire
from quire.blocks import BlockOptions, pack_texts
from tests.guard.plans import Case
from tests.tokenizer_files import load

TEXTS = [f"Document {n}: " + "a few words more " * (n * n % 23) for n in range(60)] + ["", "é\n€"]
SIZES = [1 + n * 7 % 31 for n in range(50)]
TOKENS = [
    {"input_ids": list(range(10 * n, 10 * n + size)), "labels": [n if n % 5 else -100] * size}
    for n, size in enumerate(SIZES)
]
ROWS: dict[str, dict[str, object]] = {
    "plain": {},
    "greedy": {"strategy": "greedy"},
    "wrapped": {"strategy": "wrapped"},
    "first_fit": {"strategy": "first_fit", "seed": 5},
    "stride": {"stride": 7},
    "drop": {"overlong": "drop"},
    "truncate": {"overlong": "truncate"},
    "truncate_left": {"overlong": "truncate_left"},
    "fill": {"overlong": "fill", "min_fragment": 8},
    "capped": {"max_documents_per_row": 2},
    "unshuffled": {"shuffle": False},
}
SPECIALS: dict[str, dict[str, object]] = {
    "bos": {"add_bos": True},
    "bare": {"add_bos": False, "add_eos": False},
}
SOURCES: dict[str, dict[str, object]] = {
    "cut_at": {"truncate_at": "more a"},
}
BLOCKS: dict[str, dict[str, object]] = {
    "plain": {},
    "packed": {"packed": True},
    "next_fit": {"packed": True, "overflow": False},
    "best_fit": {"packed": True, "packing_strategy": "best_fit"},
    "first_fit": {"packed": True, "packing_strategy": "first_fit", "stride": 5},
    "shuffled": {"packed": True, "shuffle_output": True, "seed": 9},
    "min_len": {"packed": True, "min_len": 40},
}


def cases() -> Iterator[tuple[str, Case]]:
    for name, options in BLOCKS.items():
        yield f"blocks/{name}", partial(_blocks, options)
    for name, options in {**ROWS, **SPECIALS, **SOURCES}.items():
        yield f"dataset/text/{name}", partial(_dataset, options)
        yield f"corpus/text/{name}", partial(_corpus, {**options, "partition_size": 4096})
    for name in ("plain", "stride", "fill", "drop"):
        yield f"dataset/tokens/{name}", partial(_dataset_of_tokens, ROWS[name])
        yield f"corpus/tokens/{name}", partial(_corpus_of_tokens, ROWS[name])
    for name, options in {"plain": {}, "everything": {"assistant_only": False}}.items():
        yield f"dataset/chat/{name}", partial(_chat, options)
    yield "corpus/index", _index


def _blocks(options: dict[str, object], _folder: Path) -> dict[str, object]:
    rows = pack_texts(TEXTS, "byte", BlockOptions(max_length=64, **options))
    return {"rows": [rows.input_ids, rows.document_starts], "ledger": rows.ledger}


def _dataset(options: dict[str, object], _folder: Path) -> dict[str, object]:
    records = [{"text": text} for text in TEXTS]
    return _packed(records, "byte", {"keep_sources": True, "seed": 42, **options})


def _dataset_of_tokens(options: dict[str, object], _folder: Path) -> dict[str, object]:
    return _packed(TOKENS, None, {"seed": 42, **options})


def _packed(records: object, tokenizer: object, options: dict[str, object]) -> dict[str, object]:
    rows, ledger = quire.pack_dataset(
        records, tokenizer, return_ledger=True, **{"max_length": 64, **options}
    )
    return {"rows": rows, "ledger": ledger}


def _chat(options: dict[str, object], _folder: Path) -> dict[str, object]:
    talks = [
        [
            {"role": "user", "content": f"question {n}"},
            {"role": "assistant", "content": "an answer " * (n % 7)},
            {"role": "user", "content": "and?"},
            {"role": "assistant", "content": "that is all"},
        ]
        for n in range(12)
    ]
    records = [{"messages": talk} for talk in talks]
    return _packed(
        records,
        load("small-qwen3"),
        {"messages_column": "messages", "max_length": 256, "seed": 42, **options},
    )


def _corpus(options: dict[str, object], folder: Path) -> dict[str, object]:
    lines = [json.dumps({"text": text}) + "\n" for text in TEXTS]
    (folder / "a.jsonl").write_text("".join(lines[:30]))
    (folder / "b.jsonl").write_text("".join(lines[30:]))
    inputs = [folder / "a.jsonl", folder / "b.jsonl"]
    result = quire.pack_corpus(
        inputs, folder / "out", "byte", **{"max_length": 64, "seed": 42, **options}
    )
    return {"rows": _shards(folder / "out"), "ledger": result.ledger}


def _corpus_of_tokens(options: dict[str, object], folder: Path) -> dict[str, object]:
    (folder / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in TOKENS))
    more = {
        "pretokenized": True,
        "max_length": 64,
        "partition_size": 1 << 20,
        "seed": 42,
        **options,
    }
    result = quire.pack_corpus([folder / "a.jsonl"], folder / "out", **more)
    return {"rows": _shards(folder / "out"), "ledger": result.ledger}


def _shards(out: Path) -> list[object]:
    return [pq.read_table(shard) for shard in sorted((out / "data").glob("*.parquet"))]


def _index(folder: Path) -> dict[str, object]:
    parts = _corpus({"index_only": True, "partition_size": 4096}, folder)
    rows = quire.PackedDataset(folder / "out")
    state = rows.loader(global_batch=4, seed=1).state_after(1, 2)
    again = quire.replan(folder / "out", max_length=128)
    read = [{name: row[name].tolist() for name in row} for row in rows]
    return {**parts, "read": read, "replanned": again.ledger, "state": state}
