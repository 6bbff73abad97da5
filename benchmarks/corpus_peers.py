"""What `quire pack` is compared with, each in its own process: `python -m
benchmarks.corpus_peers KIND INPUT TOKENIZER FOLDER`; prints the number of tokens."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

CAPACITY = 4096
PROCESSES = 2
_BATCH = 1000


def bare(source: Path, tokenizer: str, _folder: Path) -> int:
    """Only the tokenizer, over the same file; its results are discarded."""
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json"))
    count = 0
    with source.open("rb") as lines:
        while texts := [json.loads(line)["text"] for line in islice(lines, _BATCH)]:
            encodings = backend.encode_batch_fast(texts, add_special_tokens=False)
            count += sum(len(encoding) for encoding in encodings)
    return count


def trl(source: Path, tokenizer: str, folder: Path) -> int:
    """`datasets` tokenizes and trl packs, both in two processes, and the rows go to parquet."""
    from datasets import disable_progress_bars, load_dataset
    from trl import pack_dataset

    disable_progress_bars()
    kind = "parquet" if source.suffix == ".parquet" else "json"
    dataset = load_dataset(kind, data_files=str(source), split="train", cache_dir=str(folder))
    if kind == "json":
        dataset = dataset.map(
            _tokenize(tokenizer), batched=True, num_proc=PROCESSES, remove_columns=["text"]
        )
    # Splitting, as quire does by default: `bfd` would throw away what is longer than a row.
    packed = pack_dataset(dataset, CAPACITY, "bfd_split", map_kwargs={"num_proc": PROCESSES})
    packed.to_parquet(str(folder / "packed.parquet"))
    return sum(sum(lengths) for lengths in packed["seq_lengths"])


def _tokenize(tokenizer: str) -> Callable[[dict[str, list[str]]], dict[str, Any]]:
    if tokenizer == "byte":
        return _bytes
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tokenizer)

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        lists = loaded(batch["text"], add_special_tokens=False, return_attention_mask=False)
        return {"input_ids": [[*ids, loaded.eos_token_id] for ids in lists["input_ids"] if ids]}

    return tokenize


def _bytes(batch: dict[str, list[str]]) -> dict[str, Any]:
    """As arrays, which `datasets` writes several times as fast as lists."""
    arrays = [np.frombuffer(text.encode(), np.uint8).astype(np.int32) + 3 for text in batch["text"]]
    return {"input_ids": [np.concatenate([[1], ids, [2]]).astype(np.int32) for ids in arrays]}


if __name__ == "__main__":
    side = {"bare": bare, "trl": trl}[sys.argv[1]]
    print(side(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])))
