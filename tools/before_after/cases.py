"""The timed lines of `make bench` without their peers, for one checkout; prints seconds as JSON.

`python -m tools.before_after.cases SECTION [WORDS]`. Cases use only what both checkouts have, by
today's names; inputs are those of `benchmarks`.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from tools.before_after.names import use_todays_names

use_todays_names()

import quire  # noqa: E402 - after today's names

Call = Callable[[], object]
Case = tuple[str, Call]
KINDS = ("web", "chat", "instructions", "uniform")
BUFFERS = (16, 64, 256, 1000)
MODES = ("sequential", "bin", "online")
QWEN3 = Path(__file__).resolve().parents[2].parent / "shared" / "tokenizers" / "qwen3"
ENOUGH = 0.4
"""Seconds of repeats after which a case has been measured."""


def planner() -> Iterator[Case]:
    from benchmarks.harness import draw_lengths

    for kind in KINDS:
        for count in (10_000, 100_000, 1_000_000, 10_000_000):
            x = draw_lengths(kind, count, 4096)
            yield f"best_fit, {kind}, {count:,}", lambda x=x: quire.make_plan(x, 4096, "best_fit")
        x = draw_lengths(kind, 1_000_000, 131_072)
        yield (
            f"best_fit at 131,072, {kind}, 1,000,000",
            lambda x=x: quire.make_plan(x, 131_072, "best_fit"),
        )
    x = draw_lengths("web", 1_000_000, 4096)
    for name in ("best_fit", "first_fit", "greedy", "wrapped"):
        for policy in ("split", "truncate", "fill", "drop"):
            yield (
                f"{name}, {policy}, 1,000,000 web",
                lambda n=name, p=policy: quire.make_plan(x, 4096, n, overlong=p),
            )


def online() -> Iterator[Case]:
    from benchmarks.online import clipped, hard_lengths

    from quire.plan.online import OnlinePacker

    def all_buffers(lengths: list[int], max_length: int) -> None:
        for size in BUFFERS:
            packer = OnlinePacker(max_length, size)
            for key, length in enumerate(lengths):
                packer.add(key, length)

    for max_length in (2048, 4096, 8192, 131_072):
        for kind in KINDS:
            lengths = clipped(kind, 12_000, max_length).tolist()
            yield (
                f"{kind} at {max_length:,}, 4 buffers",
                lambda x=lengths, m=max_length: all_buffers(x, m),
            )
    for name, hard in hard_lengths(8191).items():
        lengths = hard.tolist()
        yield f"{name} at 8,191, 4 buffers", lambda x=lengths: all_buffers(x, 8191)


def tight() -> Iterator[Case]:
    from benchmarks.tight import WIKIPEDIA, cases

    from quire.plan.search.one_budget import solve_patterns

    counts = np.array(json.loads(WIKIPEDIA.read_text())["counts_for_length_1_up"])
    sizes = (np.flatnonzero(counts) + 1)[::-1]
    for cap in (3, 8, 16, None):
        yield (
            f"Wikipedia at 512, cap {cap or 'none'}",
            lambda c=cap: solve_patterns(sizes, counts[sizes - 1], 512, c),
        )
    for name, lengths, row, cap in cases():
        x, n = (a[::-1] for a in np.unique(lengths[lengths <= row], return_counts=True))
        yield (
            f"{name}, {len(lengths):,} at {row:,}, cap {cap or 'none'}",
            lambda x=x, n=n, r=row, c=cap: solve_patterns(x, n, r, c),
        )


def vectors() -> Iterator[Case]:
    from benchmarks.vectors import cases

    from quire.plan.search.bound import vector_bound
    from quire.plan.search.several_budgets import pack_vectors

    for name, sizes, budgets in cases():
        limits = " / ".join(map(str, budgets))
        yield f"{name}, {limits}, the bound", lambda s=sizes, b=budgets: vector_bound(s, b)
        yield (
            f"{name}, {limits}, fast",
            lambda s=sizes, b=budgets: pack_vectors(s, b, effort="fast"),
        )
        yield f"{name}, {limits}, full", lambda s=sizes, b=budgets: pack_vectors(s, b)
        for size in (128, 512, 1000):
            yield (
                f"{name}, {limits}, 8 buffers of {size}",
                lambda s=sizes, b=budgets, n=size: [
                    pack_vectors(part, b, effort="fast") for part in np.split(s[: 8 * n], 8)
                ],
            )


def balance() -> Iterator[Case]:
    from benchmarks.balance import COSTS
    from benchmarks.harness import draw_lengths

    plan = quire.make_plan(draw_lengths("web", 400_000, 8192), 8192, "best_fit", shuffle=True)
    for (ranks, rows), window in itertools.product(((64, 1), (8, 8)), (1, 4, 16)):
        for name, cost in COSTS.items():
            yield (
                f"{ranks} x {rows}, window {window}, {name}",
                lambda r=ranks, n=rows, w=window, c=cost: quire.balance(plan, r, n, window=w, **c),
            )


def blocks() -> Iterator[Case]:
    from benchmarks.blocks import cases, planning, standard_library
    from benchmarks.harness import draw_lengths

    from quire.blocks import pack_texts

    def name(options: Any) -> str:
        overflow = "overflow" if options.overflow else "no overflow"
        return f"{options.max_length:,}, {overflow}, {options.packing_strategy}"

    texts = standard_library()
    for max_length in (4096, 32_768):
        for each in cases(max_length):
            yield f"sources, {name(each)}", lambda o=each: pack_texts(texts, "byte", o)
    for kind, max_length in itertools.product(("web", "chat", "instructions"), (2048, 4096)):
        drawn = draw_lengths(kind, 100_000, max_length)
        for each in cases(max_length):
            yield f"{kind}, {name(each)}", planning(drawn, each)


def pack_dataset() -> Iterator[Case]:
    import pyarrow as pa
    from benchmarks.blocks import standard_library
    from benchmarks.pack_dataset import in_chunks, token_documents
    from datasets import Dataset

    def cold(*given: Any, **options: Any) -> Call:
        def call() -> object:
            pa.default_memory_pool().release_unused()
            return quire.pack_dataset(*given, max_length=4096, **options)

        return call

    documents = token_documents(64_000_000)
    tables = {
        "one chunk": {"input_ids": documents},
        "a chunk per 1,000 documents": {"input_ids": in_chunks(documents)},
        "one chunk, with labels": {"input_ids": documents, "labels": documents},
    }
    for name, columns in tables.items():
        for strategy in ("best_fit", "wrapped")[: 1 if "labels" in columns else 2]:
            dataset = Dataset(pa.table(columns))
            yield f"64M tokens, {name}, {strategy}", cold(dataset, strategy=strategy)
    for kind, count in (("web", 4), ("instructions", 4), ("web", 64)):
        dataset = Dataset(
            pa.table({"input_ids": in_chunks(token_documents(count * 1_000_000, kind))})
        )
        for policy in ("truncate", "split"):
            options = {"overlong": policy, "strategy": "best_fit", "return_ledger": True}
            yield f"{count}M tokens, {kind}, {policy}", cold(dataset, **options)
    texts = [text for text in standard_library() if text][:600]
    for name, records in {
        "a Dataset": Dataset(pa.table({"text": texts})),
        "dicts": [{"text": text} for text in texts],
    }.items():
        yield f"text of {name}, Qwen3", cold(records, QWEN3, strategy="best_fit")


def corpus() -> Iterator[Case]:
    from benchmarks.corpus_texts import machine_texts, standard_library, write_jsonl, write_tokens

    folder = Path(tempfile.mkdtemp())
    texts = {
        "library": write_jsonl(folder / "library.jsonl", standard_library()),
        "machine": write_jsonl(folder / "machine.jsonl", machine_texts(64_000_000)),
    }
    for name, source in texts.items():
        tokens = write_tokens(source.with_suffix(".parquet"), source)
        given = {"Qwen3": (source, QWEN3), "byte": (source, "byte"), "tokens": (tokens, None)}
        for (kind, (file, tokenizer)), workers in itertools.product(given.items(), (1, 2)):
            yield (
                f"{name}, {kind}, workers {workers}",
                lambda f=file, t=tokenizer, w=workers: _command(f, t, w),
            )


def _command(source: Path, tokenizer: object, workers: int) -> None:
    kind = ["--pretokenized"] if tokenizer is None else ["--tokenizer", str(tokenizer)]
    size = str(-(-source.stat().st_size // 8))
    with tempfile.TemporaryDirectory() as out:
        words = [sys.executable, "-m", "quire", "pack", str(source), "--out", f"{out}/o", *kind]
        words += ["--max-length", "4096", "--workers", str(workers), "--partition-size", size]
        # The strategy is named: the default was best_fit before.
        words += ["--strategy", "best_fit"]
        subprocess.run(words, check=True, capture_output=True)  # noqa: S603


def ray_engine() -> Iterator[Case]:
    import ray
    from benchmarks.ray_engine import _cluster, _works

    cluster = _cluster()
    cluster.__enter__()
    folder = Path(tempfile.mkdtemp())
    for number, work in enumerate(_works(folder, 64_000_000)):
        work.pack(work.few, 2, folder / f"warm-{number}", "ray")
        counter = itertools.count()
        yield (
            f"wall, {work.name}",
            lambda w=work, c=counter, n=number: w.pack(
                w.source, w.partitions, folder / f"{n}-{next(c)}", "ray"
            ),
        )
    ray.shutdown()


def loader() -> Iterator[Case]:
    from benchmarks.loader import _packed, padded

    folder = Path(tempfile.mkdtemp())
    rows = quire.PackedDataset(_packed(folder))
    order = np.random.default_rng(0).permutation(len(rows)).tolist()

    def read(dataset: Any) -> None:
        for number in order:
            dataset[number]["input_ids"].sum()

    def batches(workers: int) -> None:
        for _ in rows.loader(global_batch=8, seed=1, collate=padded).torch(num_workers=workers):
            pass

    yield "random rows", lambda: read(rows)
    as_torch = rows.torch()
    yield "random rows, torch()", lambda: read(as_torch)
    yield "shuffled batches, no workers", lambda: batches(0)
    yield "shuffled batches, 2 workers", lambda: batches(2)


def collate() -> Iterator[Case]:
    from benchmarks.collate import DOCUMENTS_PER_ROW, packed_features, random_starts

    from quire.boundaries import Boundaries
    from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
    from quire.masks.flex import block_mask

    draw = np.random.default_rng(0)
    flat = PaddingFreeCollator()
    stacked = DataCollatorForCausalLM(SimpleNamespace(pad_token_id=0, eos_token_id=2))
    for count in DOCUMENTS_PER_ROW:
        starts = [random_starts(count, 4096, draw) for _ in range(8)]
        batch = Boundaries.of_rows(starts, [4096] * 8)
        forms: dict[str, Call] = {
            "Boundaries": lambda s=starts: Boundaries.of_rows(s, [4096] * 8),
            **{n: getattr(batch, n) for n in ("position_ids", "segment_ids", "seq_idx")},
            "cu_seqlens": batch.cu_seqlens,
        }
        rows, row_lists, documents = packed_features(count, draw)
        forms |= {
            "PaddingFreeCollator, documents": lambda d=documents: flat(d),
            "PaddingFreeCollator, lists": lambda r=row_lists: flat(r),
            "PaddingFreeCollator, arrays": lambda r=rows: flat(r),
            "DataCollatorForCausalLM, lists": lambda r=row_lists: stacked(r),
            "DataCollatorForCausalLM, arrays": lambda r=rows: stacked(r),
        }
        for name, form in forms.items():
            yield f"{name}, {count} documents a row", lambda f=form: calls_of(f, 20)
    for count in (32, 1024):
        starts = random_starts(count, 131_072, np.random.default_rng(0))
        segments = Boundaries.of_rows([starts], [131_072]).segment_ids()
        for tokens in (8_192, 131_072):
            yield (
                f"BlockMask of {tokens:,} tokens, {count} documents",
                lambda s=segments[:, :tokens]: block_mask(s),
            )


def calls_of(function: Call, number: int) -> None:
    """So many calls, which do not keep their results."""
    for _ in range(number):
        function()


def vision() -> Iterator[Case]:
    from benchmarks.vision import Samples, _num_packs, one_dimensional, published

    from quire.vision import PackedVLDataset

    def packs(samples: Samples, length: int, buffer: int, **known: Any) -> list:
        sizes = {"packing_length": length, "packing_buffer": buffer, "packing_drop_last": False}
        return list(PackedVLDataset(samples, **sizes, **known))

    for name, (lengths, most) in one_dimensional(20_000).items():
        samples = Samples(lengths)
        for buffer in (128, 512, 1000):
            yield (
                f"{name}, buffer {buffer}",
                lambda s=samples, m=most, b=buffer: packs(s, m, b),
            )
            yield (
                f"{name}, buffer {buffer}, known lengths",
                lambda s=samples, m=most, b=buffer, x=lengths: packs(s, m, b, lengths=x),
            )
    for name, (tokens, tiles) in published().items():
        sizes = np.column_stack([tokens[:20_000], tiles[:20_000]])
        for most in (64, 56):
            yield (
                f"{name}, {most} tiles, whole epoch",
                lambda s=sizes, m=most: _num_packs(s, np.array([16_384, m])),
            )


def stream() -> Iterator[Case]:
    from benchmarks.harness import draw_lengths
    from benchmarks.stream_pipeline import _pipeline_options, _write_texts

    from quire.stream import open_stream, save_state

    folder = tempfile.mkdtemp()
    _write_texts(Path(folder))

    def configured(*words: Any) -> dict[str, Any]:
        options = _pipeline_options(folder, *words)
        options["data"]["tokenizer"].pop("tokenizer_engine", None)  # unknown before
        return options

    def read(options: dict[str, Any], steps: int) -> None:
        with open_stream(options) as batches:
            for _ in itertools.islice(batches, steps):
                pass

    for kind, mode in itertools.product(("byte", "Qwen3"), MODES):
        for workers, prefetch in itertools.product((0, 2), (0, 2)):
            options = configured(kind, mode, workers, prefetch)
            yield (
                f"{kind}, {mode}, {workers} workers, prefetch {prefetch}",
                lambda o=options, s=60 if kind == "byte" else 15: read(o, s),
            )
    for kind in ("web", "chat", "instructions"):
        lengths = np.minimum(draw_lengths(kind, 12_000, 4096), 4096)
        ids = np.random.default_rng(0).integers(3, 151_936, int(lengths.sum()), dtype=np.int32)
        documents = np.split(ids, np.cumsum(lengths)[:-1])
        for mode in MODES:
            yield (
                f"12,000 encoded {kind} documents, {mode}",
                lambda m=mode, d=documents: _packer_adds(m, d),
            )
    for mode in MODES:
        batches = open_stream(configured("byte", mode, 0, 0))
        for _ in range(20):
            next(batches)
        state = batches.get_state()
        yield f"get_state, {mode}", batches.get_state
        yield f"save_state, {mode}", lambda s=state: save_state(s, Path(folder) / "state.json")


def _packer_adds(mode: str, documents: list[np.ndarray]) -> None:
    """All documents through a packer of streams."""
    try:
        from quire.stream.packers import PACKERS, PackerOptions

        strategy = {"sequential": "wrapped", "bin": "first_fit"}.get(mode, mode)
        packer = PACKERS[strategy](
            PackerOptions(window_size=4096, vocab_size=151_936, buffer_size=128, min_tail=2)
        )
    except ImportError:  # before decision 16
        from quire.config import load_options
        from quire.stream import StreamConfig
        from quire.stream.packers import make_packer

        tokenizer = {"kind": "byte", "byte_offset": 151_680}
        data = {"packing_mode": mode, "packing_buffer_docs": 128, "tokenizer": tokenizer}
        train = {"seq_len": 4095, "batch_size": 8}
        options = load_options(StreamConfig, {"data": data, "train": train})
        packer = make_packer(options.data, 4096, 151_936)
    for document in documents:
        packer.add(document)


def measured(case: str, call: Call) -> float:
    """Seconds of the fastest call: of CPU, children included, or of the clock if it says so."""
    clock = time.perf_counter if case.startswith("wall") else _cpu
    times: list[float] = []
    call()  # caches and imports
    while sum(times) < ENOUGH and len(times) < 30:
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def _cpu() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    """Print the seconds of a section's cases, or of those whose names contain the words."""
    section, words = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    if not Path(quire.__file__).is_relative_to(os.environ["QUIRE_TREE"]):
        raise SystemExit(f"quire was imported from {quire.__file__}")
    found = {case: measured(case, call) for case, call in globals()[section]() if words in case}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
