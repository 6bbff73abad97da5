"""Small files that expand without end: refused, and never held in memory as a whole.

Fault 53. Every way to read a corpus is tried: `pack_corpus`, `quire plan` and streams.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire.corpus.lengths import corpus_lengths
from quire.corpus.options import CorpusOptions
from quire.errors import CorruptFile
from quire.stream import open_stream
from tests.corpus.corpora import jsonl, pack, rows

MEBIBYTE = 1 << 20


class Chat(quire.ByteTokenizer):
    """A tokenizer of conversations that is never called."""

    chat_template = "{{ messages }}"

    def get_chat_template(self, **options):
        return self.chat_template

    def apply_chat_template(self, *arguments, **options):
        raise NotImplementedError


@pytest.fixture
def memory():
    """A memory pool of Arrow that records its peak size."""
    before = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(before)
    pa.set_memory_pool(watched)
    yield watched
    pa.set_memory_pool(before)


def repeated(text, count):
    """A column that stores a text once, however often it is repeated."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def parquet_of(path, columns, **options):
    written = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 30, "store_schema": False}
    pq.write_table(pa.table(columns), path, **{**written, **options})
    return path


def arrow_of(path, columns, kind=pa.ipc.new_file, compression="zstd"):
    table = pa.table(columns)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, kind(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return path


def stream_of(path):
    data = {"backend": "files", "files": [str(path)], "tokenizer": {"kind": "byte"}}
    return open_stream({"data": data, "train": {"seq_len": 4096, "batch_size": 64}})


def drained(path):
    for _ in stream_of(path):
        pass


READERS = {
    "pack": pack,
    "plan": lambda path, out: corpus_lengths([path], "byte", CorpusOptions(max_length=4096)),
    "stream": lambda path, out: drained(path),
}


@pytest.mark.parametrize(
    ("reader", "store_schema"),
    [("pack", False), ("plan", False), ("stream", False), ("plan", True)],
)
def test_53_a_text_that_is_repeated_in_a_few_bytes_is_refused(
    tmp_path, memory, reader, store_schema
):
    columns = {"text": repeated("a" * (2 * MEBIBYTE), 1024)}
    bomb = parquet_of(tmp_path / "a.parquet", columns, store_schema=store_schema)
    assert bomb.stat().st_size < 5000
    with pytest.raises(CorruptFile, match=r"expands to more than .*, over 250 times as many"):
        READERS[reader](bomb, tmp_path / "out")
    assert memory.max_memory() < 200 * MEBIBYTE


def test_53_a_text_encoded_as_a_copy_of_the_one_before_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("quire.formats.parquet.PIECE_BYTES", MEBIBYTE)
    monkeypatch.setattr("quire.formats.compression.ALWAYS_ALLOWED", 2 * MEBIBYTE)
    corpus = parquet_of(
        tmp_path / "a.parquet",
        {"text": ["a" * MEBIBYTE] * 40},
        use_dictionary=False,
        column_encoding={"text": "DELTA_BYTE_ARRAY"},
    )
    before, watched = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(watched)
    try:
        with pytest.raises(CorruptFile, match="expands to more than"):
            pack(corpus, tmp_path / "out")
    finally:
        pa.set_memory_pool(before)
    assert watched.max_memory() < 15 * MEBIBYTE


def test_53_text_that_is_repeated_inside_a_conversation_is_refused(tmp_path, memory):
    """A row may hold any number of messages, so its size is checked before it is expanded."""
    texts, roles = repeated("a" * MEBIBYTE, 512), repeated("user", 512)
    messages = pa.StructArray.from_arrays([roles, texts], ["role", "content"])
    column = pa.ListArray.from_arrays(pa.array([0, 512], pa.int32()), messages)
    bomb = parquet_of(tmp_path / "a.parquet", {"messages": column})
    with pytest.raises(CorruptFile, match="expands to more than 536872"):
        pack(bomb, tmp_path / "out", Chat(), messages_column="messages", assistant_only=False)
    assert memory.max_memory() < 100 * MEBIBYTE


@pytest.mark.parametrize("reader", ["pack", "plan"])
def test_53_repeated_numbers_are_refused_by_the_footer(tmp_path, memory, reader):
    ends, zeros = pa.array([0, 30_000_000], pa.int32()), pa.array(np.zeros(30_000_000, np.int32))
    ids = pa.ListArray.from_arrays(ends, zeros)
    bomb = parquet_of(tmp_path / "a.parquet", {"input_ids": ids})
    del ids
    held = memory.max_memory()
    options = {"max_length": 4096, "pretokenized": True}
    with pytest.raises(CorruptFile, match="expands to more than"):
        if reader == "pack":
            pack(bomb, tmp_path / "out", None, pretokenized=True)
        else:
            corpus_lengths([bomb], None, CorpusOptions(**options))
    assert memory.max_memory() == held


@pytest.mark.parametrize("kind", [pa.ipc.new_file, pa.ipc.new_stream])
def test_53_a_column_that_is_not_packed_is_not_decompressed(tmp_path, kind):
    columns = {"text": ["abc"] * 4, "other": [b"\0" * (30 * MEBIBYTE)] * 4}
    corpus = arrow_of(tmp_path / "a.arrow", columns, kind)
    del columns
    before, watched = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(watched)
    try:
        pack(corpus, tmp_path / "out")
    finally:
        pa.set_memory_pool(before)
    assert watched.max_memory() < 30 * MEBIBYTE


@pytest.mark.parametrize("kind", [pa.ipc.new_file, pa.ipc.new_stream])
@pytest.mark.parametrize("name", ["text", "other"])
def test_53_a_compressed_column_is_measured_before_it_is_decompressed(tmp_path, kind, name):
    texts = {"text": ["a"], "other": ["a"], "flags": [True], "ids": [[1, 2]], name: None}
    texts[name] = ["a" * (80 * MEBIBYTE)]
    corpus = arrow_of(tmp_path / "a.arrow", texts, kind)
    with pytest.raises(CorruptFile, match="expands to more than 838860"):
        pack(corpus, tmp_path / "out", text_column=name)
    pack(corpus, tmp_path / "out", text_column="text" if name == "other" else "other")


def test_a_dictionary_of_an_arrow_file_is_expanded_in_pieces(tmp_path, memory):
    columns = {"text": repeated("a" * 65536, 512)}
    corpus = arrow_of(tmp_path / "a.arrow", columns, compression=None)
    options = CorpusOptions(max_length=4096)
    assert corpus_lengths([corpus], "byte", options).lengths.tolist() == [65537] * 512
    assert memory.max_memory() < 120 * MEBIBYTE


@pytest.mark.parametrize("write", [parquet_of, arrow_of])
def test_repeated_texts_of_ordinary_size_are_packed_as_from_lines(tmp_path, write):
    texts = ["a", "bc", "a", None, "é", "bc"] * 50
    corpus = write(tmp_path / "a.table", {"text": pa.array(texts).dictionary_encode()})
    corpus = corpus.rename(tmp_path / ("a.parquet" if write is parquet_of else "a.arrow"))
    lines = jsonl(tmp_path / "a.jsonl", [{"text": text} for text in texts])
    for name, source in (("table", corpus), ("lines", lines)):
        pack(source, tmp_path / name, max_bad_records=50)
    assert rows(tmp_path / "table").equals(rows(tmp_path / "lines"))
