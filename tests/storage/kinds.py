"""One corpus in every kind of file, and its way into a store."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.corpus.corpora import jsonl, texts


def every_kind(folder: Path) -> Path:
    """A folder with files of all kinds."""
    folder.mkdir()
    jsonl(folder / "a.jsonl", texts(300, 1))
    jsonl(folder / "deep.jsonl", texts(40, 2)).rename(_made(folder / "deep") / "b.jsonl")
    plain = jsonl(folder / "plain", texts(150, 3)).read_bytes()
    (folder / "plain").unlink()
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(plain, mtime=0))
    with pa.CompressedOutputStream(str(folder / "d.jsonl.zst"), "zstd") as stream:
        stream.write(plain)
    table = pa.table({"number": range(200), "text": texts(200, 4)})
    pq.write_table(table, folder / "e.parquet", row_group_size=50)
    with pa.ipc.new_file(str(folder / "f.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=60)
    (folder / "g.txt").write_text("one document\n", encoding="utf-8")
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def put_all(client, bucket: str, folder: Path, below: str) -> str:
    """The files of a folder in a bucket; their URI."""
    for path in folder.rglob("*"):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            client.put_object(Bucket=bucket, Key=f"{below}/{name}", Body=path.read_bytes())
    return f"s3://{bucket}/{below}"


def lines(records: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in records).encode()
