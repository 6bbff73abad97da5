"""A tokenized `datasets.Dataset` with indices, as `shuffle`, `select` and `concatenate_datasets`
leave it, packed directly, compared with the same rows in plain order. Goal: at most 2 × the time
per document.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.harness import Table, best_of_interleaved, milliseconds, ratio
from benchmarks.pack_dataset import CAPACITY, _documents, _in_chunks

TITLE = "Datasets with indices"
NUM_TOKENS = 8_000_000


def run() -> list[Table]:
    from datasets import Dataset, concatenate_datasets

    from quire import pack_dataset

    table = Table(
        f"{NUM_TOKENS:,} tokens into rows of {CAPACITY:,}",
        ["dataset", "documents", "time", "of plain, for each document"],
        "int32 ids, web-like lengths, chunks of 1,000 documents. Best of 5, timed in turn.",
    )
    documents = _in_chunks(_documents(NUM_TOKENS))
    plain = Dataset(pa.table({"input_ids": documents}), fingerprint="plain")
    order = np.random.default_rng(1).permutation(len(plain))
    shuffled = plain.shuffle(seed=1)
    datasets = {
        "plain": plain,
        "shuffled": shuffled,
        "half, selected": plain.select(order[: len(order) // 2]),
        "a tenth, selected": plain.select(order[: len(order) // 10]),
        "shuffled and plain, concatenated": concatenate_datasets([shuffled, plain]),
    }
    calls = [
        lambda d=dataset: pack_dataset(d, max_length=CAPACITY) for dataset in datasets.values()
    ]
    times = best_of_interleaved(5, *calls)
    for (name, dataset), time in zip(datasets.items(), times, strict=True):
        share = (time / len(dataset)) / (times[0] / len(plain))
        table.add(name, f"{len(dataset):,}", milliseconds(time), ratio(share))
    return [table]
