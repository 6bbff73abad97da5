"""Where documents are in the files of other systems, read once more, and plainly.

Nothing here is shared with `quire.formats`, so that a mistake there is found. A reader returns the
lengths of documents, and how many tokens its files have.
"""

from __future__ import annotations

import csv
import gzip
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile
from quire.printable import counted
from quire.storage import AnyPath, RemotePath

Ints = npt.NDArray[np.int64]
Found = tuple[Ints, int]
Options = Mapping[str, str]
_HEADER = struct.Struct("<9sQBQQ")
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}
"""Bytes of a token, by Megatron's type code."""
_AT_A_TIME = 1 << 22


def _megatron(path: AnyPath, options: Options) -> Found:
    """The lengths of Megatron's sequences, or of documents of several."""
    raw = path.read_bytes()
    _, _, code, num_sequences, num_ends = _HEADER.unpack_from(raw)
    at = _HEADER.size
    lengths = np.frombuffer(raw, "<i4", num_sequences, at).astype(np.int64)
    places = np.frombuffer(raw, "<i8", num_sequences, at + lengths.nbytes // 2)
    ends = np.frombuffer(raw, "<i8", num_ends, at + 12 * num_sequences)
    tokens = path.parent / f"{path.name[: -len('.idx')]}.bin"
    _require_apart(tokens, places, lengths * _SIZES[code])
    num_tokens = tokens.stat().st_size // _SIZES[code]
    if options.get("unit") != "documents":
        return lengths, num_tokens
    totals: Ints = np.append(0, np.cumsum(lengths))
    return np.diff(totals[ends]), num_tokens


def _datatrove(path: AnyPath, options: Options) -> Found:
    index, metadata = (path.parent / (path.name + end) for end in (".index", ".metadata"))
    bytes_ = path.stat().st_size
    size = int(np.dtype(options["dtype"]).itemsize) if "dtype" in options else 0
    if not size and metadata.is_file():
        size = int(metadata.read_bytes().split(b"\n")[0].rpartition(b"|")[2])
    if not index.is_file():
        return _scanned(path, size, options)
    ends = np.frombuffer(index.read_bytes(), "<u8").astype(np.int64)
    size = size or bytes_ // int(ends[-1])
    lengths = np.diff(ends, prepend=0)
    _require_apart(path, (ends - lengths) * size, lengths * size)
    return lengths, bytes_ // size


def _olmo(path: AnyPath, options: Options) -> Found:
    metadata = path.parent / f"{path.name[: -len('.npy')]}.csv.gz"
    size = int(np.dtype(options["dtype"]).itemsize) if "dtype" in options else 0
    if "eos" in options or not metadata.is_file():
        return _scanned(path, size, options)
    text = gzip.decompress(metadata.read_bytes()).decode()
    spans = [(int(line[0]), int(line[1])) for line in csv.reader(text.splitlines()) if line]
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    bytes_ = path.stat().st_size
    size = size or bytes_ // int(ends.max())
    _require_apart(path, starts * size, (ends - starts) * size)
    return ends - starts, bytes_ // size


def _llmc(path: AnyPath, options: Options) -> Found:
    with path.open("rb") as file:
        magic = file.read(4)
    known = {struct.pack("<i", 20240520): 2, struct.pack("<i", 20240801): 4}
    size = np.dtype(options["dtype"]).itemsize if "dtype" in options else known[magic]
    return _scanned(path, size, options, 1024 if magic in known else 0)


def _scanned(path: AnyPath, size: int, options: Options, header: int = 0) -> Found:
    """Documents between the tokens that end or start them."""
    total = (path.stat().st_size - header) // size
    token, first, found = int(options["eos"]), 0, [np.zeros(0, np.int64)]
    for values in _blocks(path, header, size):
        found.append(first + np.flatnonzero(values == token))
        first += len(values)
    marks = np.concatenate(found)
    if options.get("at") == "start":
        lengths, rest = np.diff(marks, append=total), int(np.append(marks, total)[0])
        kept = np.append(rest, lengths)
    else:
        lengths = np.diff(marks, prepend=-1)
        rest = total - int(lengths.sum())
        kept = np.append(lengths, rest)
    keeps_rest = options.get("tail") == "keep" and rest > 0
    return (kept if keeps_rest else lengths), total


def _blocks(path: AnyPath, header: int, size: int) -> Iterator[npt.NDArray[Any]]:
    with path.open("rb") as file:
        file.read(header)
        while data := file.read(_AT_A_TIME * size):
            yield np.frombuffer(data, f"<u{size}")


def _litdata(path: AnyPath, options: Options) -> Found:
    del options
    index = json.loads(path.read_bytes())
    kind, _, number = index["config"]["data_format"][0].partition(":")
    torch = {11: 1, 12: 1, 13: 2, 14: 2, 15: 4, 16: 4, 17: 8, 18: 8, 20: 2}
    size = torch[int(number)] if kind == "no_header_tensor" else 1 << int(number) % 4
    lengths = [np.zeros(0, np.int64)]
    for chunk in index["chunks"]:
        raw = (path.parent / chunk["filename"]).read_bytes()
        offsets = _offsets(raw)
        _require_apart(path.parent / chunk["filename"], offsets[:-1], np.diff(offsets))
        lengths.append(np.diff(offsets) // size)
    return _without_rest(np.concatenate(lengths))


def _offsets(raw: bytes) -> Ints:
    (count,) = struct.unpack_from("<I", raw)
    return np.frombuffer(raw, "<u4", count + 1, 4).astype(np.int64)


def _mds(path: AnyPath, options: Options) -> Found:
    lengths: list[int] = []
    for shard in json.loads(path.read_bytes())["shards"]:
        plain = path.parent / shard["raw_data"]["basename"]
        if plain.is_file():
            raw = plain.read_bytes()
        else:
            packed = (path.parent / shard["zip_data"]["basename"]).read_bytes()
            raw = pa.input_stream(pa.py_buffer(packed), compression="zstd").read()
        offsets = _offsets(raw).tolist()
        samples = (raw[start:stop] for start, stop in pairwise(offsets))
        lengths += [_mds_length(shard, sample, options) for sample in samples]
    return _without_rest(np.array(lengths, np.int64))


def _mds_length(shard: Mapping[str, Any], sample: bytes, options: Options) -> int:
    names, encodings, sizes = (shard[f"column_{part}"] for part in ("names", "encodings", "sizes"))
    wanted = options.get("column") or next(n for n in ("input_ids", "tokens") if n in names)
    given = struct.unpack_from(f"<{sizes.count(None)}I", sample)
    values, at = iter(given), 4 * len(given)
    for name, encoding, size in zip(names, encodings, sizes, strict=True):
        width = next(values) if size is None else size
        if name == wanted:
            return _array_length(encoding, sample[at : at + width], options)
        at += width
    raise ValueError(f"no column {wanted!r}")


def _array_length(encoding: str, data: bytes, options: Options) -> int:
    kind, _, rest = encoding.partition(":")
    typed, _, shape = rest.partition(":")
    if kind == "bytes":
        return len(data) // np.dtype(options["dtype"]).itemsize
    if not typed:
        typed, data = {8: "u1", 9: "i1", 16: "u2", 17: "i2", 32: "u4", 33: "i4", 64: "u8",
                       65: "i8"}[data[0]], data[1:]  # fmt: skip
    if not shape:
        data = data[1 + (1 << (data[0] & 3)) :]
    return len(data) // np.dtype(typed).itemsize


def _arrow(path: AnyPath, options: Options) -> Found:
    files = [path]
    if path.name == "state.json":
        entries = json.loads(path.read_bytes())["_data_files"]
        files = [path.parent / entry["filename"] for entry in entries]
    name = options.get("column", "input_ids")
    return _without_rest(np.concatenate([_list_lengths(_arrow_table(f), name) for f in files]))


def _arrow_table(path: AnyPath) -> pa.Table:
    data = pa.py_buffer(path.read_bytes())
    is_file = data.slice(0, 6).to_pybytes() == b"ARROW1"
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(data).read_all()


def _list_lengths(table: pa.Table, name: str) -> Ints:
    found = [chunk.value_lengths().to_numpy().astype(np.int64) for chunk in table[name].chunks]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _parquet(path: AnyPath, options: Options) -> Found:
    name = options.get("column", "input_ids")
    return _without_rest(_list_lengths(_parquet_table(path, [name]), name))


def _nemo(path: AnyPath, options: Options) -> Found:
    del options
    table = _parquet_table(path, ["input_ids", "seq_start_id"])
    lengths: list[int] = []
    for row in table.to_batches():
        sizes = row["input_ids"].value_lengths().to_pylist()
        for starts, size in zip(row["seq_start_id"].to_pylist(), sizes, strict=True):
            lengths += np.diff([*starts, size]).tolist()
    return _without_rest(np.array(lengths, np.int64))


def _parquet_table(path: AnyPath, names: list[str]) -> pa.Table:
    source = path.arrow_file() if isinstance(path, RemotePath) else path
    return pq.read_table(source, columns=names, partitioning=None)


def _without_rest(lengths: Ints) -> Found:
    return lengths, int(lengths.sum())


def _require_apart(path: AnyPath, starts: Ints, sizes: Ints) -> None:
    """Raise if two documents share a byte, or one is not in the file."""
    starts, sizes = starts[sizes > 0], sizes[sizes > 0]
    order = np.argsort(starts, kind="stable")
    edges = np.append(starts[order], path.stat().st_size)
    wrong = (starts[order] < 0) | (starts[order] + sizes[order] > edges[1:])
    if wrong.any():
        at = order[int(np.argmax(wrong))]
        raise CorruptFile(
            f"{path}: {counted(int(sizes[at]), 'byte')} of a document at byte {starts[at]} are not "
            "in the file, or belong to another one, too"
        )


READERS: Mapping[str, Callable[[AnyPath, Options], Found]] = {
    "megatron": _megatron,
    "datatrove": _datatrove,
    "olmo": _olmo,
    "llmc": _llmc,
    "mds": _mds,
    "litdata": _litdata,
    "nemo": _nemo,
    "arrow": _arrow,
    "parquet": _parquet,
}
