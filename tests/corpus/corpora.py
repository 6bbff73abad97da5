"""Tiny corpora, and the contents of an output."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from quire.corpus import PackResult, pack_corpus

WORDS = ["a", "quire", "is", "sheets", "bound", "naïve", "中文", "🙂", "\u2028", "\t"]


def texts(count: int, seed: int = 0) -> list[str]:
    choose = random.Random(seed)
    return [" ".join(choose.choices(WORDS, k=choose.randint(0, 12))) for _ in range(count)]


def jsonl(path: Path, records: list) -> Path:
    lines = [json.dumps({"text": r} if isinstance(r, str) else r) + "\n" for r in records]
    path.write_text("".join(lines), encoding="utf-8", newline="")
    return path


def pack(inputs, out: Path, tokenizer="byte", **options) -> PackResult:
    inputs = [inputs] if isinstance(inputs, str | Path) else inputs
    return pack_corpus(inputs, out, tokenizer, **{"max_length": 16, **options})


def rows(out: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("data/*.parquet"))])


def hashes(out: Path) -> dict[str, str]:
    """Every file below the output, including hidden ones."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


def forge(out: Path, change) -> None:
    """Change the manifest and give it a matching checksum, which no accident does."""
    manifest = json.loads((out / "manifest.json").read_text())
    change(manifest)
    said = {name: value for name, value in manifest.items() if name != "checksum"}
    plain = json.dumps(said, sort_keys=True, separators=(",", ":"))
    manifest["checksum"] = hashlib.sha256(plain.encode()).hexdigest()
    (out / "manifest.json").write_text(json.dumps(manifest))


def contents(out: Path) -> dict[int, list[int]]:
    """The tokens of every document, joined from its fragments without BOS."""
    pieces: dict[int, dict[int, list[int]]] = {}
    for row in rows(out).to_pylist():
        edges = [*row["document_starts"], len(row["input_ids"])]
        for number, (document, offset) in enumerate(
            zip(row["document_ids"], row["document_offsets"], strict=True)
        ):
            tokens = row["input_ids"][edges[number] : edges[number + 1]]
            assert offset not in pieces.setdefault(document, {}), "a fragment stands twice"
            pieces[document][offset] = tokens[1:] if tokens[0] == 1 else tokens
    whole = {}
    for document, parts in sorted(pieces.items()):
        whole[document] = []
        for offset, tokens in sorted(parts.items()):
            assert offset == len(whole[document]), "a fragment is missing"
            whole[document] += tokens
    return whole
