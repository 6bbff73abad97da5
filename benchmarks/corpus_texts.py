"""Corpora of the text that every machine has: sources, documentation, manual pages."""

from __future__ import annotations

import gzip
import hashlib
import json
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.text import ByteTokenizer

_MANUALS = (Path("/usr/share/doc"), Path("/usr/share/man"))
_SUFFIXES = {".py", ".md", ".txt", ".rst", ".gz"}
_LARGEST = 4_000_000


def standard_library() -> Iterator[str]:
    """The sources of the standard library, one document per file."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in folder.rglob("*.py") if "site-packages" not in path.parts)
    return filter(None, map(_text, files))


def machine_texts(size: int) -> Iterator[str]:
    """This many bytes of packages' sources, documentation and manual pages, half of each kind.

    Files are taken by the hash of their names, so that every kind of them is met early.
    """
    packages = Path(np.__file__).parents[1]  # site-packages, also of a venv that shares others
    for folders in ((packages,), _MANUALS):
        files = [path for folder in folders for path in folder.rglob("*") if _is_text(path)]
        files.sort(key=lambda path: hashlib.sha256(str(path).encode()).digest())
        yield from _until(size // 2, filter(None, map(_text, files)))


def _is_text(path: Path) -> bool:
    return path.suffix in _SUFFIXES and path.is_file() and path.stat().st_size <= _LARGEST


def _until(size: int, texts: Iterator[str]) -> Iterator[str]:
    for text in texts:
        if size <= 0:
            return
        size -= len(text)
        yield text


def _text(path: Path) -> str | None:
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return data.decode("utf-8")
    except (OSError, EOFError, ValueError):  # a broken link, no gzip, no UTF-8
        return None


def write_jsonl(path: Path, texts: Iterator[str]) -> Path:
    """The texts, one JSON object per line."""
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    return path


def first_lines(source: Path, size: int, folder: Path) -> Path:
    """A file of the source's lines, up to that many bytes or a line more."""
    path = folder / f"{source.stem}-{size}.jsonl"
    with source.open("rb") as lines, path.open("wb") as file:
        while file.tell() < size and (line := lines.readline()):
            file.write(line)
    return path


def write_tokens(path: Path, source: Path, rows: int = 200) -> Path:
    """The bytes of a jsonl file's texts as documents of token ids, in parquet."""
    schema = pa.schema({"input_ids": pa.list_(pa.int32())})
    with source.open("rb") as lines, pq.ParquetWriter(path, schema) as writer:
        texts: list[str] = []
        for line in lines:
            texts.append(json.loads(line)["text"])
            if len(texts) == rows:
                writer.write_table(_tokens(texts, schema))
                texts = []
        writer.write_table(_tokens(texts, schema))
    return path


def _tokens(texts: Sequence[str], schema: pa.Schema) -> pa.Table:
    encoded = ByteTokenizer().encode_batch(texts)
    offsets = np.append(0, np.cumsum(encoded.lengths))
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(encoded.tokens))
    return pa.table([lists], schema=schema)


def text_bytes(source: Path) -> int:
    """The partition size in bytes for this file."""
    if source.suffix != ".parquet":
        return source.stat().st_size
    metadata = pq.read_metadata(source)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return 4 * sum(group.column(0).num_values for group in groups)  # int32, as shards count them
