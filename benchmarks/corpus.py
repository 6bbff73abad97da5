"""The installed command, `quire pack INPUT --out DIR --tokenizer … --max-length 4096 --workers N`,
from a file to a packed dataset on disk, compared with peers that read the same file, each in a new
process. Start-up is measured separately, with the same command on a file of a few short documents:
Python and its imports, the tokenizer's file, the workers. Two comparisons: without start-up, as for
a long run, and in total, the waiting time for this corpus. "CPU" is user and system time of all
processes; memory is the largest sum of the resident memory of all processes, start-up included.
Every corpus is divided into 8 partitions.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from tools.tokenizer_families import llama3_style, sentencepiece_style

from benchmarks.corpus_peers import CAPACITY, PROCESSES
from benchmarks.corpus_texts import (
    first_lines,
    machine_texts,
    standard_library,
    text_bytes,
    write_jsonl,
    write_tokens,
)
from benchmarks.harness import Table, ratio
from benchmarks.process_tree import Run, best_runs, run_once

TITLE = "A corpus on disk: quire pack"
LARGE_BYTES = 120_000_000
QWEN3_BYTES = 250_000_000
MEMORY_BYTES = 6_000_000
MEMORY_PARTITION = 4 << 20
PARTITIONS = 8
LIBRARY, MACHINE = "standard library", "this machine's text"
LARGE = f"{MACHINE}, {QWEN3_BYTES // 10**6} MB"
REPEATS = {LIBRARY: 2, MACHINE: 1, LARGE: 1}
QUICK_REPEATS = 3
TOKENIZERS = Path(__file__).resolve().parents[1].parent / "shared" / "tokenizers"
QWEN3 = TOKENIZERS / "qwen3"
HEADER = (
    "corpus",
    "what",
    "tokens",
    "start-up",
    "time without it",
    "CPU without it",
    "tokens a second",
    "peak memory",
)
AGAINST = ("of datasets and trl", "the same in all")
Side = Callable[[Path, Path], Sequence[object]]
"""The arguments of a command, given the file to read and an empty folder."""
_TRL = "datasets and trl"
_PEER = (
    f"datasets {version('datasets')} and trl {version('trl')}: `load_dataset`, `map` with the "
    f"tokenizer where there is text, `pack_dataset` with `bfd_split`, which like quire splits what "
    f"is longer than a row, each in {PROCESSES} processes, and `to_parquet`. Each side writes "
    "parquet as it does by default: quire with zstd's level 1, datasets with snappy, "
    "dictionaries, content-defined pages and a page index."
)


def run() -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        corpora = _corpora(Path(folder))
        large = write_jsonl(corpora.folder / "large.jsonl", machine_texts(QWEN3_BYTES))
        tables = [_qwen3(corpora, {**corpora.texts, LARGE: large}), _families(corpora)]
        return [*tables, _bytes(corpora), _tokens(corpora), _memory(corpora)]


@dataclass(frozen=True, kw_only=True)
class Corpora:
    """Files by name, and small ones with which start-up is measured."""

    folder: Path
    texts: dict[str, Path]
    tokens: dict[str, Path]
    few_texts: Path
    few_tokens: Path


def _corpora(folder: Path) -> Corpora:
    few = write_jsonl(folder / "few.jsonl", iter(["a few words"] * 2 * PROCESSES))
    texts = {
        LIBRARY: write_jsonl(folder / "library.jsonl", standard_library()),
        MACHINE: write_jsonl(folder / "machine.jsonl", machine_texts(LARGE_BYTES)),
    }
    return Corpora(
        folder=folder,
        texts=texts,
        tokens={
            name: write_tokens(path.with_suffix(".parquet"), path) for name, path in texts.items()
        },
        few_texts=few,
        few_tokens=write_tokens(folder / "few.parquet", few, rows=1),
    )


def quire_pack(
    workers: int, tokenizer: object, source: Path, folder: Path, partition_size: int | None = None
) -> list[object]:
    """The command, with a partition size that makes enough partitions for all workers."""
    kind = ["--pretokenized"] if tokenizer is None else ["--tokenizer", tokenizer]
    size = partition_size or -(-text_bytes(source) // PARTITIONS)
    words = [sys.executable, "-m", "quire", "pack", source, "--out", folder / "out", *kind]
    words += ["--max-length", CAPACITY, "--workers", workers, "--partition-size", size]
    return [*words, "--json"]


def peer(kind: str, tokenizer: object, source: Path, folder: Path) -> list[object]:
    """The command of a peer."""
    words = [sys.executable, "-m", "benchmarks.corpus_peers", kind]
    return [*words, source, "none" if tokenizer is None else tokenizer, folder]


def _qwen3(corpora: Corpora, texts: dict[str, Path]) -> Table:
    table = Table(
        "Qwen3's tokenizer",
        [*HEADER[:-1], "of the bare tokenizer", *AGAINST, HEADER[-1]],
        f"The bare tokenizer is tokenizers {version('tokenizers')} `encode_batch_fast`, 1,000 "
        "documents at a time on all cores, whose results are discarded; one worker of quire uses "
        f"all cores too, two share them. {_PEER} quire encodes with fastokens "
        f"{version('fastokens')} where there is enough text; loading that is not in the start-up, "
        "which is measured with a few words. Goals with 2 workers and 100 MB or more: 14 times "
        "the bare tokenizer, 25 times datasets and trl, 15 times in all.",
    )
    if not QWEN3.is_dir():
        table.add(f"not measured: no tokenizer at {QWEN3.name}", *[""] * (len(table.header) - 1))
        return table
    bare: Side = partial(peer, "bare", QWEN3)
    sides = {"bare tokenizer": bare, **_sides(QWEN3)}
    starts = _starts(sides, corpora.few_texts)
    for name, source in texts.items():
        for what, row in _measured(sides, starts, source, REPEATS[name]).items():
            bare_share = ratio(row.compared["bare tokenizer"])
            table.add(name, what, *row.cells, bare_share, *row.against_trl, row.memory)
    return table


def _families(corpora: Corpora) -> Table:
    table = Table(
        "Other tokenizers",
        ["tokenizer", "quire, 2 workers", "bare tokenizer", "ratio", "the same in all"],
        f"{LARGE_BYTES // 10**6} MB of this machine's text, once each, without start-up. GPT-2's "
        "file is the published one; the Llama 3 and SentencePiece styles are trained on the "
        "standard library, with 32,000 tokens.",
    )
    for name, folder in _family_folders(corpora).items():
        sides: dict[str, Side] = {
            "quire": partial(quire_pack, 2, folder),
            "bare": partial(peer, "bare", folder),
        }
        starts = _starts(sides, corpora.few_texts)
        runs = best_runs(1, *(partial(side, corpora.texts[MACHINE]) for side in sides.values()))
        ours, theirs = (
            run.seconds - start.seconds for run, start in zip(runs, starts, strict=True)
        )
        in_all = ratio(runs[1].seconds / runs[0].seconds)
        table.add(name, f"{ours:.2f} s", f"{theirs:.2f} s", ratio(theirs / ours), in_all)
    return table


def _family_folders(corpora: Corpora) -> dict[str, Path]:
    """Folders with a tokenizer.json, by the tokenizer's name."""
    texts = list(standard_library())
    found = {"GPT-2": TOKENIZERS / "gpt2"} if TOKENIZERS.is_dir() else {}
    styles = {"Llama 3 style": llama3_style, "SentencePiece style": sentencepiece_style}
    for name, train in styles.items():
        found[name] = corpora.folder / name.split()[0]
        found[name].mkdir()
        train(texts).save(str(found[name] / "tokenizer.json"))
    return found


def _bytes(corpora: Corpora) -> Table:
    table = Table(
        "Bytes",
        [*HEADER[:-1], *AGAINST, HEADER[-1]],
        f"{_PEER} It is given arrays, not lists. Goal with 2 workers: at least 4.5 times.",
    )
    return _against_trl(table, _sides("byte"), corpora.few_texts, corpora.texts)


def _tokens(corpora: Corpora) -> Table:
    table = Table(
        "Tokens that are given, in parquet",
        [*HEADER[:-1], *AGAINST, HEADER[-1]],
        f"The same bytes as documents of int32 `input_ids`, 200 in a row group. {_PEER} Goal with "
        "2 workers: at least 4 times.",
    )
    return _against_trl(table, _sides(None), corpora.few_tokens, corpora.tokens)


def _against_trl(
    table: Table, sides: dict[str, Side], few: Path, corpora: dict[str, Path]
) -> Table:
    starts = _starts(sides, few)
    for name, source in corpora.items():
        for what, row in _measured(sides, starts, source, QUICK_REPEATS).items():
            table.add(name, what, *row.cells, *row.against_trl, row.memory)
    return table


def _sides(tokenizer: object) -> dict[str, Side]:
    return {
        "quire, 1 worker": partial(quire_pack, 1, tokenizer),
        "quire, 2 workers": partial(quire_pack, 2, tokenizer),
        _TRL: partial(peer, "trl", tokenizer),
    }


@dataclass(frozen=True, kw_only=True)
class Row:
    """One side's figures."""

    cells: list[str]
    compared: dict[str, float]
    """Its rate over that of each side, without start-up."""
    in_all: float
    """The total time of datasets and trl, divided by its own."""
    memory: str

    @property
    def against_trl(self) -> tuple[str, str]:
        return ratio(self.compared[_TRL]), ratio(self.in_all)


def _starts(sides: dict[str, Side], few: Path) -> list[Run]:
    return best_runs(2, *(partial(side, few) for side in sides.values()))


def _measured(
    sides: dict[str, Side], starts: list[Run], source: Path, repeats: int
) -> dict[str, Row]:
    runs = best_runs(repeats, *(partial(side, source) for side in sides.values()))
    tokens = _agreed(dict(zip(sides, runs, strict=True)))
    times = [run.seconds - start.seconds for run, start in zip(runs, starts, strict=True)]
    whole = dict(zip(sides, runs, strict=True))[_TRL].seconds
    return {
        what: Row(
            cells=[
                f"{tokens:,}",
                f"{start.seconds:.1f} s",
                f"{seconds:.2f} s",
                f"{run.cpu - start.cpu:.1f} s",
                f"{tokens / seconds / 1e6:.2f} million",
            ],
            compared={other: time / seconds for other, time in zip(sides, times, strict=True)},
            in_all=whole / run.seconds,
            memory=megabytes(run),
        )
        for what, start, run, seconds in zip(sides, starts, runs, times, strict=True)
    }


def _agreed(runs: dict[str, Run]) -> int:
    """The token count that all sides report, up to one or two special tokens per fragment."""
    ours = json.loads(runs["quire, 2 workers"].output.splitlines()[-1])
    fragments = ours["ledger"]["documents"]["input"] + 2 * ours["rows"]
    for what, run in runs.items():
        if not what.startswith("quire"):
            assert abs(int(run.output.split()[-1]) - ours["tokens"]) <= 2 * fragments, what
    return int(ours["tokens"])


def _memory(corpora: Corpora) -> Table:
    table = Table(
        "Peak memory as the corpus grows",
        ["text", "workers", "partitions", "peak memory", "of the smallest"],
        f"Bytes, `--partition-size {MEMORY_PARTITION >> 20}M`, once each.",
    )
    for workers in (1, 2):
        first = None
        for times in (1, 4, 16):
            source = first_lines(corpora.texts[MACHINE], MEMORY_BYTES * times, corpora.folder)
            run = run_once(
                partial(quire_pack, workers, "byte", source, partition_size=MEMORY_PARTITION)
            )
            first = first or run.peak
            shards = json.loads(run.output.splitlines()[-1])["shards"]
            size = f"{source.stat().st_size / 1e6:.0f} MB"
            table.add(size, workers, shards, megabytes(run), ratio(run.peak / first))
    return table


def megabytes(run: Run) -> str:
    """Its peak memory."""
    return f"{run.peak / 1e6:,.0f} MB"
