"""MosaicML's MDS: ``index.json`` lists shards of samples, plain or compressed with zstd.

A shard is a count, absolute offsets (uint32), a JSON config and the samples. A sample is the sizes
(uint32) of its columns without a fixed size, then the values. An ``ndarray`` may begin with its
type and with its shape; ``bytes`` do not say which type they hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from quire.errors import CorruptFile, InvalidOption
from quire.formats.expanded import decompressed
from quire.formats.files import file_beside
from quire.formats.token_files import TOKENS, Column, Ints, TokenBytes, TokenFile
from quire.printable import counted
from quire.storage import AnyPath

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "column": (),
    "dtype": ("uint8", "uint16", "int16", "uint32", "int32", "int64"),
}
_COLUMNS = (TOKENS, "tokens")
_TYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 32: "uint32", 33: "int32", 64: "uint64",
    65: "int64",
}  # fmt: skip
_MOST_INDEX = 1 << 30


def recognizes(path: AnyPath) -> bool:
    """Whether this is an index of MDS shards."""
    return path.name == "index.json" and path.is_file() and "shards" in read_index(path)


def main_file(path: AnyPath) -> AnyPath | None:
    """The index of a path."""
    return path if path.name == "index.json" and path.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The samples of every shard."""
    del known
    shards = read_index(path).get("shards")
    if not isinstance(shards, list) or not shards:
        raise CorruptFile(f"{path} lists no shards; restore it")
    return [_open(path, shard, options) for shard in shards]


def read_index(path: AnyPath) -> dict[str, Any]:
    """The JSON object of an index."""
    if path.stat().st_size > _MOST_INDEX:
        raise CorruptFile(f"{path} has {path.stat().st_size} bytes, too many for an index")
    try:
        plain = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not JSON: {error}; restore it") from error
    return plain if isinstance(plain, dict) else {}


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """What the index says of a shard."""

    samples: int
    names: list[str]
    encodings: list[str]
    sizes: list[int | None]


def _open(path: AnyPath, plain: object, options: Mapping[str, str]) -> TokenFile:
    shard, data = _described(path, plain), _data(path, plain)
    name = _column_name(path, shard, options)
    number = shard.names.index(name)
    starts, stops = samples_of(data, shard.samples)
    places, sizes = _places(data, shard, number, starts, stops)
    dtype, places, sizes = _values(data, shard.encodings[number], options, places, sizes)
    if (sizes % dtype.itemsize).any():
        at = int(np.argmax(sizes % dtype.itemsize != 0))
        raise CorruptFile(
            f"{data.path}: column {name!r} of sample {at} has {sizes[at]} bytes at byte "
            f"{places[at]}, which are not {dtype.name}; restore it, or name the type"
        )
    return TokenFile(
        path=data.path,
        index=[path],
        lengths=sizes // dtype.itemsize,
        columns={TOKENS: Column(data, dtype, places)},
    )


def _described(path: AnyPath, plain: object) -> _Shard:
    try:
        shard = dict(plain)  # type: ignore[call-overload]
        found = _Shard(
            samples=shard["samples"],
            names=list(shard["column_names"]),
            encodings=list(shard["column_encodings"]),
            sizes=list(shard["column_sizes"]),
        )
        if shard["format"] != "mds" or shard["version"] != 2:
            raise ValueError(f"format {shard['format']!r:.40}, version {shard['version']!r:.40}")
        is_whole = len(found.names) == len(found.encodings) == len(found.sizes) > 0
        are_sizes = all(
            size is None or (type(size) is int and 0 < size < 2**31) for size in found.sizes
        )
        are_texts = all(isinstance(text, str) for text in (*found.names, *found.encodings))
        if type(found.samples) is not int or not (is_whole and are_sizes and are_texts):
            raise ValueError("columns or samples of the wrong kind")
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(f"{path}: a shard is not one of MDS version 2: {error!r:.200}") from error
    return found


def _data(path: AnyPath, plain: Any) -> TokenBytes:  # noqa: ANN401 - JSON
    plain = plain if isinstance(plain, dict) else {}
    raw, packed = plain.get("raw_data"), plain.get("zip_data")
    files = {
        key: file_beside(path, about.get("basename"))
        for key, about in (("raw", raw), ("packed", packed))
        if isinstance(about, dict)
    }
    if "raw" in files and files["raw"].is_file():
        data = TokenBytes(files["raw"])
    elif "packed" in files and files["packed"].is_file():
        compression = str(plain.get("compression")).partition(":")[0]
        if compression != "zstd":
            raise InvalidOption(
                f"{path}: shards are compressed with {compression!r}, but only zstd is read; write "
                "them again, or decompress them"
            )
        data = decompressed(files["packed"], "zstd")
    else:
        raise CorruptFile(f"{path} names a shard that is not beside it; restore it")
    said = raw.get("bytes") if isinstance(raw, dict) else None
    if said != data.size:
        raise CorruptFile(f"{data.path} has {data.size} bytes, but {path.name} says {said}")
    return data


def _column_name(path: AnyPath, shard: _Shard, options: Mapping[str, str]) -> str:
    wanted = [options["column"]] if "column" in options else _COLUMNS
    name = next((name for name in wanted if name in shard.names), None)
    if name is None:
        raise InvalidOption(
            f"{path} has the columns {', '.join(shard.names)}, but none is "
            f"{' or '.join(wanted)}; give the format mds:column=NAME"
        )
    return name


def samples_of(data: TokenBytes, samples: int) -> tuple[Ints, Ints]:
    """Where every sample starts and ends."""
    u4 = np.dtype("<u4")
    count = int(data.array(u4, 0, 1)[0]) if data.size >= 4 else -1
    if count != samples or data.size < 8 + 4 * count:
        raise CorruptFile(
            f"{data.path} counts {counted(count, 'sample')} at byte 0, but its index says {samples}"
        )
    offsets = data.array(u4, 4, count + 1).astype(np.int64)
    if count and (
        offsets[0] < 8 + 4 * count or offsets[-1] > data.size or (np.diff(offsets) < 0).any()
    ):
        wrong = int(np.argmax(np.diff(offsets) < 0))
        raise CorruptFile(
            f"{data.path}: offsets do not rise from byte {8 + 4 * count} to {data.size} (see "
            f"sample {wrong} at byte {4 + 4 * wrong}); restore it"
        )
    return offsets[:-1], offsets[1:]


def _places(
    data: TokenBytes, shard: _Shard, number: int, starts: Ints, stops: Ints
) -> tuple[Ints, Ints]:
    """Where a column's value is in every sample, and its bytes."""
    variable = [at for at, size in enumerate(shard.sizes) if size is None]
    head, room = 4 * len(variable), stops - starts
    fixed = sum(size or 0 for size in shard.sizes)
    if (room < head + fixed).any():
        raise _short(data, starts, room < head + fixed)
    if variable == [number]:  # nothing but offsets has to be read
        sizes: dict[int, Ints] = {number: room - head - fixed}
    else:
        here = data.here()
        sizes = {at: _gathered(here, starts + 4 * n, "<u4") for n, at in enumerate(variable)}
        total = sum(sizes.values(), np.zeros(len(starts), np.int64)) + head + fixed
        if (total != room).any():
            raise _short(data, starts, total != room)
    before = [sizes.get(at, size or 0) for at, size in enumerate(shard.sizes[:number])]
    own = sizes.get(number, np.full(len(starts), shard.sizes[number] or 0))
    return starts + head + sum(before, np.zeros(len(starts), np.int64)), own


def _short(data: TokenBytes, starts: Ints, wrong: Any) -> CorruptFile:  # noqa: ANN401 - a mask
    at = int(np.argmax(wrong))
    return CorruptFile(
        f"{data.path}: sample {at} at byte {starts[at]} has another size than its columns; restore "
        "it"
    )


def _gathered(data: TokenBytes, places: Ints, kind: str) -> Ints:
    """A number at each of these bytes, which the caller has checked to be inside."""
    dtype = np.dtype(kind)
    raw = data.array(np.dtype("u1"), 0, data.size)
    found = raw[places[:, None] + np.arange(dtype.itemsize)].view(dtype)[:, 0]
    return np.asarray(found, dtype=np.int64)


def _values(
    data: TokenBytes, encoding: str, options: Mapping[str, str], places: Ints, sizes: Ints
) -> tuple[np.dtype[Any], Ints, Ints]:
    """The type of the values, and where they are, without the header."""
    kind, _, arguments = encoding.partition(":")
    typed, _, shape = arguments.partition(":")
    if kind == "bytes":
        if "dtype" not in options:
            raise InvalidOption(
                f"{data.path} holds tokens as bytes, which may be of any type; give it, such as "
                "mds:dtype=uint16 (llm-foundry wrote int64)"
            )
        return np.dtype(options["dtype"]).newbyteorder("<"), places, sizes
    if kind != "ndarray":
        raise InvalidOption(f"{data.path} holds {encoding}, but tokens are in ndarray or bytes")
    if not typed:
        typed, places, sizes = _leading_type(data, places, sizes)
    if typed not in _TYPES.values():
        raise CorruptFile(f"{data.path} holds {encoding}, which are not token ids")
    if not shape:
        places, sizes = _after_shape(data, places, sizes)
    return np.dtype(typed).newbyteorder("<"), places, sizes


def _leading_type(data: TokenBytes, places: Ints, sizes: Ints) -> tuple[str, Ints, Ints]:
    if (sizes < 1).any():
        raise _short(data, places, sizes < 1)
    codes = np.unique(_gathered(data.here(), places, "u1"))
    if len(codes) != 1 or int(codes[0]) not in _TYPES:
        raise CorruptFile(f"{data.path} holds arrays of the types {codes.tolist()}, not one type")
    return _TYPES[int(codes[0])], places + 1, sizes - 1


def _after_shape(data: TokenBytes, places: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    if (sizes < 1).any():
        raise _short(data, places, sizes < 1)
    heads = _gathered(data.here(), places, "u1")
    skipped = 1 + (1 << (heads & 3))
    wrong = (heads >> 2 != 1) | (skipped > sizes)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise CorruptFile(
            f"{data.path}: the array at byte {places[at]} has {heads[at] >> 2} dimensions, but "
            "tokens have one; restore it"
        )
    return places + skipped, sizes - skipped
