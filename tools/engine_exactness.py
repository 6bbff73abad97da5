"""Compare the fast tokenizer engine with `tokenizers`: fuzzed strings and real text, per family.

    python -m tools.engine_exactness --strings 10000000 --megabytes 1000 --json counts.json
    python -m tools.engine_exactness --families llama3 --texts /usr/share/doc --megabytes 50
    python -m tools.engine_exactness --strings 10000000 --megabytes 1000 --minutes 45 --seed 1

What is compared is what quire uses: the path of ``tokenizer_engine="auto"``, with its fallbacks.
The families take turns, a batch each, so that a run that ends early has compared all of them. The
counts are written with the commit that they belong to. Every difference is printed; the exit code
is 1 if there is any.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
from tools.tokenizer_families import FAMILIES

from quire.text.engine import open_tokenizer
from quire.text.fast_tokenizer import FastTokenizer
from quire.text.hostile_texts import hostile_texts

_BATCH = 20_000
_MAX_TEXT = 65_536
_SUFFIXES = {
    ".py",
    ".md",
    ".txt",
    ".rst",
    ".json",
    ".html",
    ".xhtml",
    ".xml",
    ".js",
    ".css",
    ".po",
    ".gz",
    ".dic",
    ".c",
    ".h",
    ".1",
    ".3",
    ".5",
    ".7",
    ".8",
    "",
}


def real_texts(folders: list[Path], seed: int = 0) -> Iterator[str]:
    """The text files of the folders, at most 64 KiB characters at a time; shuffled by a seed."""
    for folder in folders:
        files = sorted(folder.rglob("*"))
        if seed:
            random.Random(seed).shuffle(files)  # noqa: S311 - not for secrets
        for file in files:
            if file.suffix in _SUFFIXES and file.is_file() and not file.is_symlink():
                text = _text_of(file)
                for first in range(0, len(text), _MAX_TEXT):
                    yield text[first : first + _MAX_TEXT]


def _text_of(file: Path) -> str:
    try:
        data = file.read_bytes()
        return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    except (OSError, UnicodeDecodeError, EOFError):
        return ""


def varied_texts(folders: list[Path], megabytes: int, seed: int) -> Iterator[str]:
    """Real texts, and once these are used up, their lines drawn at random into new texts."""
    wanted, lines = megabytes * 1_000_000, []
    for text in real_texts(folders, seed):
        yield text
        wanted -= len(text.encode())
        if wanted <= 0:
            return
        lines += text.split("\n")[::7]
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    while wanted > 0:
        text = "\n".join(draw.choices(lines, k=200))
        yield text
        wanted -= len(text.encode())


def fuzzed_strings(count: int, added_tokens: list[str], seed: int) -> Iterator[list[str]]:
    """Batches of short strings made of hostile pieces and random characters."""
    draw = np.random.default_rng(seed)
    pieces = [text for text in hostile_texts(added_tokens) if len(text) < 40]
    pieces += added_tokens * 3 + [" ", "\n", "'", "\u017f"] * 20
    for _ in range(0, count, _BATCH):
        characters = _random_characters(draw, 20_000)
        pool = np.array([*pieces, *characters], dtype=object)
        lengths = draw.integers(1, 9, _BATCH)
        chosen = pool[draw.integers(0, len(pool), int(lengths.sum()))].tolist()
        ends = np.cumsum(lengths).tolist()
        yield ["".join(chosen[a:b]) for a, b in itertools.pairwise([0, *ends])]


def _random_characters(draw: np.random.Generator, count: int) -> list[str]:
    low, high = draw.integers(1, 0x3000, count), draw.integers(0x3000, 0x110000, count)
    numbers = np.where(draw.random(count) < 0.8, low, high)
    return [chr(n) for n in numbers.tolist() if not 0xD800 <= n < 0xE000]


def count_differences(tokenizer: FastTokenizer, batch: list[str]) -> int:
    """The texts whose ids differ; prints them."""
    ours, theirs = tokenizer.encode_batch(batch), tokenizer.reference.encode_batch(batch)
    if np.array_equal(ours.lengths, theirs.lengths) and np.array_equal(ours.tokens, theirs.tokens):
        return 0
    different = [n for n in range(len(batch)) if not np.array_equal(ours.of(n), theirs.of(n))]
    for number in different[:20]:
        print("different:", ascii(batch[number])[:300], flush=True)
    return len(different)


def compare(
    family: str, folders: list[Path], strings: int, megabytes: int, seed: int
) -> Iterator[dict[str, int]]:
    """The counts of one family so far, after each batch."""
    backend = FAMILIES[family](itertools.islice(real_texts(folders), 2_000))
    tokenizer = open_tokenizer(backend, "fast")
    assert isinstance(tokenizer, FastTokenizer)  # noqa: S101
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    counts = {"strings": 0, "bytes": 0, "differences": 0, "vocabulary": backend.get_vocab_size()}
    batches = fuzzed_strings(strings, added, seed)
    texts = varied_texts(folders, megabytes, seed)
    while True:
        batch, some = next(batches, []), list(itertools.islice(texts, 300))
        if not batch and not some:
            return
        counts["differences"] += count_differences(tokenizer, batch)
        counts["strings"] += len(batch)
        counts["differences"] += count_differences(tokenizer, some)
        counts["bytes"] += sum(len(text.encode()) for text in some)
        yield counts


def compare_families(given: argparse.Namespace) -> dict[str, dict[str, int]]:
    """The counts of all families, which take turns until they are done or the time is over."""
    begin, counts = time.monotonic(), {}
    running = {
        family: compare(family, given.texts, given.strings, given.megabytes, given.seed)
        for family in given.families
    }
    while running:
        for family, counting in list(running.items()):
            if (found := next(counting, None)) is None:
                del running[family]
                continue
            counts[family] = found
            minutes = (time.monotonic() - begin) / 60
            print(f"{family}: {found} after {minutes:.1f} minutes", flush=True)
            if given.minutes and minutes >= given.minutes:
                return counts
    return counts


def main() -> None:
    """Compare all families and write the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    paths = sysconfig.get_paths()
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--strings", type=int, default=100_000, help="fuzzed strings per family")
    parser.add_argument("--megabytes", type=int, default=20, help="real text per family")
    parser.add_argument("--minutes", type=float, help="stop after this time with what there is")
    parser.add_argument(
        "--texts", type=Path, nargs="+", default=[Path(paths["stdlib"]), Path(paths["purelib"])]
    )
    parser.add_argument("--seed", type=int, default=0, help="of the strings and the order of texts")
    parser.add_argument("--json", type=Path, help="where to write the counts")
    given = parser.parse_args()
    commit = _commit()  # of what is imported, not of what is committed while it runs
    counts = compare_families(given)
    versions = {name: version(name) for name in ("fastokens", "tokenizers")}
    found = {"commit": commit, "versions": versions, "seed": given.seed, "families": counts}
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(any(count["differences"] for count in counts.values()))


def _commit() -> str:
    git = ["git", "describe", "--always", "--abbrev=12", "--dirty"]
    here = Path(__file__).parent
    return subprocess.run(git, cwd=here, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    main()
