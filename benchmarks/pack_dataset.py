"""A whole dataset packed end to end: the plan, the copy of its tokens and the `datasets.Dataset`
around them. Datasets of tokens are compared with a plain copy of the same bytes into new memory,
the minimum for any packer; trl's `pack_dataset` gets the same dataset in the same process. Text is
compared with the bare tokenizer: `encode_batch_fast` on lists of the same texts, whose result is
discarded.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.corpus_texts import machine_texts
from benchmarks.harness import Table, best_of, draw_lengths, milliseconds, peak_bytes, ratio

TITLE = "Whole datasets"
NUM_TOKENS = 64_000_000
TRL_TOKENS = 4_000_000
CAPACITY = 4096
TOKENIZER = Path(__file__).resolve().parents[1].parent / "shared" / "tokenizers" / "qwen3"
TEXT_BYTES = 55_000_000


def run() -> list[Table]:
    return [_tokens(), _against_trl(), _text()]


def token_documents(num_tokens: int, kind: str = "web") -> pa.ListArray:
    """Random ids in documents of such lengths."""
    lengths = draw_lengths(kind, 1 + num_tokens // 100, CAPACITY)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), num_tokens)]
    offsets = np.append(0, np.cumsum(lengths))
    ids = np.random.default_rng(0).integers(0, 150_000, offsets[-1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))


def in_chunks(documents: pa.ListArray, size: int = 1000) -> pa.ChunkedArray:
    """The same in chunks of this many documents, as `datasets` stores them."""
    parts = [documents.slice(first, size) for first in range(0, len(documents), size)]
    return pa.chunked_array([pa.concat_arrays([part[:1], part[1:]]) for part in parts])


def _tokens() -> Table:
    from datasets import Dataset

    from quire import pack_dataset

    table = Table(
        f"{NUM_TOKENS:,} tokens into rows of {CAPACITY:,}",
        ["dataset", "strategy", "time", "of a plain copy", "tokens a second", "peak memory"],
        "int32 ids, web-like lengths. The plain copy is `numpy.copy` of the values, timed in turn "
        "with the others. Before every call Arrow gives back the memory that it keeps, so that all "
        "sides pay for new pages; without that quire would look up to twice as fast. Memory is "
        "what the call adds, its result included, as a multiple of the bytes of its columns. "
        "`wrapped` on one chunk copies nothing: its rows are slices of the input, which stays in "
        "memory with them.",
    )
    documents = token_documents(NUM_TOKENS)
    values = documents.values.to_numpy()
    one = Dataset(pa.table({"input_ids": documents}))
    many = Dataset(pa.table({"input_ids": in_chunks(documents)}))
    labelled = Dataset(pa.table({"input_ids": documents, "labels": documents}))
    sides = {
        ("one chunk", "best_fit"): one,
        ("one chunk", "wrapped"): one,
        ("a chunk per 1,000 documents", "best_fit"): many,
        ("a chunk per 1,000 documents", "wrapped"): many,
        ("one chunk, with labels", "best_fit"): labelled,
    }
    calls = {
        key: lambda d=dataset, s=key[1]: pack_dataset(d, max_length=CAPACITY, strategy=s)
        for key, dataset in sides.items()
    }
    copied, *times = _cold_times(20, values.copy, *calls.values())
    table.add("numpy copy", "", milliseconds(copied), ratio(1), _rate(copied), "1.0 ×")
    for (key, call), seconds in zip(calls.items(), times, strict=True):
        bytes_ = values.nbytes * (2 if "labels" in key[0] else 1)
        share = seconds / copied / (bytes_ / values.nbytes)
        pa.default_memory_pool().release_unused()
        peak = f"{peak_bytes(call) / bytes_:.1f} ×"
        table.add(*key, milliseconds(seconds), ratio(share), _rate(seconds), peak)
    return table


def _cold_times(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """The fastest call of each, interleaved; no call reuses memory pages of an earlier one."""

    def once(function: Callable[[], object]) -> float:
        gc.collect()
        pa.default_memory_pool().release_unused()
        return best_of(1, function)

    times = [[once(function) for function in functions] for _ in range(repeats)]
    return [min(column) for column in zip(*times, strict=True)]


def _rate(seconds: float, num_tokens: int = NUM_TOKENS) -> str:
    return f"{num_tokens / seconds / 1e6:,.1f} million"


def _against_trl() -> Table:
    from datasets import Dataset, disable_progress_bars
    from trl import pack_dataset as trl_pack_dataset

    from quire import pack_dataset

    disable_progress_bars()
    table = Table(
        "The same against trl",
        ["lengths", "tokens", "packer", "rows", "time", "tokens a second", "of quire's time"],
        f"trl {version('trl')} `pack_dataset` packs every 1,000 documents separately (its "
        "default), or all of them at once (`batch_size=None`); quire packs all at once. Documents "
        f"of more than {CAPACITY:,} tokens are cut by `bfd` and `truncate`, split by `bfd_split` "
        "and `split`. "
        f"Best of 10 at {TRL_TOKENS:,} tokens, of 4 at {NUM_TOKENS:,}. trl works "
        "through documents in Python, so its time follows their number; web documents have 1,035 "
        "tokens on average, instructions 157.",
    )
    for kind, num_tokens, repeats in (
        ("web", TRL_TOKENS, 10),
        ("instructions", TRL_TOKENS, 10),
        ("web", NUM_TOKENS, 4),
    ):
        dataset = Dataset(pa.table({"input_ids": in_chunks(token_documents(num_tokens, kind))}))
        for strategy, overlong in (("bfd", "truncate"), ("bfd_split", "split")):
            at_once = {"batch_size": None}
            sides = {
                f"trl {strategy}": lambda d=dataset, s=strategy: trl_pack_dataset(d, CAPACITY, s),
                f"trl {strategy}, at once": lambda d=dataset, s=strategy, a=at_once: (
                    trl_pack_dataset(d, CAPACITY, s, map_kwargs=a)
                ),
                f"quire {overlong}": lambda d=dataset, o=overlong: pack_dataset(
                    d, max_length=CAPACITY, overlong=o, return_ledger=True
                )[0],
            }
            times = _cold_times(repeats, *sides.values())
            for (name, call), seconds in zip(sides.items(), times, strict=True):
                share = ratio(seconds / times[-1])
                rate = _rate(seconds, num_tokens)
                table.add(
                    kind,
                    f"{num_tokens:,}",
                    name,
                    f"{len(call()):,}",
                    milliseconds(seconds),
                    rate,
                    share,
                )
    return table


def _text() -> Table:
    texts = _machine_texts()
    size = sum(map(len, texts))
    table = Table(
        "Text into rows",
        ["what", "time", "times the bare tokenizer", "text a second", "peak memory"],
        f"{len(texts):,} files of sources, documentation and manual pages, {size / 1e6:.1f} "
        f"million characters, Qwen3's `tokenizer.json`, best of 3. The bare tokenizer is "
        f"tokenizers {version('tokenizers')} on all cores, 1,000 documents at a time; "
        f"quire encodes with fastokens {version('fastokens')} and compares. Loading is "
        "excluded. Memory is what the call adds in a new process. Goal: 20 times the bare "
        "tokenizer.",
    )
    if not TOKENIZER.is_dir():
        table.add(f"not measured: no tokenizer at {TOKENIZER.name}", "", "", "", "")
        return table
    sides = _text_sides(texts)
    times = _cold_times(3, *sides.values())
    for name, seconds in zip(sides, times, strict=True):
        rate = f"{size / seconds / 1e6:.2f} MB"
        memory = f"{_peak_in_a_new_process(list(sides).index(name)) / 1e6:,.0f} MB"
        table.add(name, milliseconds(seconds), ratio(times[0] / seconds), rate, memory)
    return table


def _text_sides(texts: list[str]) -> dict[str, Callable[[], object]]:
    import tokenizers
    from datasets import Dataset

    from quire import pack_dataset
    from quire.text.engine import open_tokenizer

    backend = tokenizers.Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    dataset = Dataset(pa.table({"text": texts}))
    records = [{"text": text} for text in texts]
    loaded = open_tokenizer(TOKENIZER, "fast")

    def bare() -> None:
        for first in range(0, len(texts), 1000):
            backend.encode_batch_fast(texts[first : first + 1000], add_special_tokens=False)

    return {
        "encode_batch_fast": bare,
        "pack_dataset of a Dataset": lambda: pack_dataset(dataset, loaded, max_length=CAPACITY),
        "pack_dataset of dicts": lambda: pack_dataset(records, loaded, max_length=CAPACITY),
    }


def _peak_in_a_new_process(side: int) -> int:
    """Memory that was freed stays with the process, and would hide what the next call takes."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_text_peak, (side,))


def _text_peak(side: int) -> int:
    return peak_bytes(list(_text_sides(_machine_texts()).values())[side])


def _machine_texts() -> list[str]:
    return [text for text in machine_texts(TEXT_BYTES) if text]
