"""Open whatever holds packed rows: datasets, files of rows, streams and recipes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml  # type: ignore[import-untyped]

from quire.errors import CorruptFile, InvalidOption, InvalidRow, missing_dependency
from quire.formats.arrays import require_sound
from quire.storage import AnyPath, RemotePath
from quire.text import TokenizerLike, as_tokenizer
from quire.view.batches import batch_views
from quire.view.rows import Decode, Inputs, Rows, RowView

if TYPE_CHECKING:
    from quire.packed import PackedDataset
    from quire.stream import StreamConfig


def open_rows(
    path: AnyPath,
    tokenizer: TokenizerLike | None = None,
    *,
    plan: str | None = None,
    variables: Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    decode: Decode | None = None,
) -> Rows:
    """The rows of a packed dataset, a saved dataset, a file of rows, a stream or a recipe.

    ``plan`` names a plan of an index-only output, ``variables`` are those of a recipe.
    ``cache_dir`` holds the memory-mapped copy of a packed dataset, as for `PackedDataset`.
    ``decode`` may take the place of a tokenizer.
    """
    if tokenizer is not None:
        decode = decoder(tokenizer)
    if isinstance(path, RemotePath) or (path / "manifest.json").is_file():
        return _packed(path, decode, plan, cache_dir)
    if not path.exists():
        raise InvalidOption(f"{path} does not exist; name a folder, a file or a recipe")
    if path.is_dir():
        return _saved(path, decode)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, decode, variables or {})
    if path.suffix not in _FILES:
        raise InvalidOption(
            f"{path} is not a file of rows: its suffix is {path.suffix!r}, not one of "
            f"{', '.join(sorted(_FILES))}, .yaml"
        )
    return _FILES[path.suffix](path, decode)


def _packed(path: AnyPath, decode: Decode | None, plan: str | None, cache_dir: Path | None) -> Rows:
    from quire.packed import PackedDataset

    return packed_rows(PackedDataset(path, plan=plan, cache_dir=cache_dir), decode)


def packed_rows(dataset: PackedDataset, decode: Decode | None = None) -> Rows:
    """The rows of a packed dataset, with the source of every fragment if it was kept."""
    tokenizer = dataset.manifest.get("tokenizer") or {}
    if decode is None and tokenizer.get("kind") == "byte":
        decode = decoder("byte")
    return Rows(
        kind="packed dataset",
        rows=dataset.with_sources(),
        decode=decode,
        num_rows=len(dataset),
        max_length=dataset.max_length,
        inputs=_inputs(dataset.manifest),
    )


def _inputs(manifest: Mapping[str, Any]) -> Inputs:
    files = tuple(str(given["name"]) for given in manifest["inputs"])
    return Inputs(files=files, record_kind=manifest["options"].get("record_kind"))


def _saved(path: Path, decode: Decode | None) -> Rows:
    if not any((path / f"dataset_{name}.json").is_file() for name in ("info", "dict")):
        raise InvalidOption(
            f"{path} has neither a manifest.json (quire pack) nor a dataset_info.json "
            "(save_to_disk): it is unfinished, or holds no packed rows"
        )
    try:
        from datasets import Dataset, load_from_disk
    except ModuleNotFoundError:
        raise missing_dependency("datasets", "a folder that save_to_disk wrote", "hf") from None
    dataset = load_from_disk(str(path))
    if not isinstance(dataset, Dataset):
        names = ", ".join(dataset)
        raise InvalidOption(f"{path} holds several splits; name the folder of one: {names}")
    return Rows(kind="saved dataset", rows=dataset, decode=decode, num_rows=len(dataset))


_DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)
"""What Arrow raises; the last if names of columns, or texts, are not valid UTF-8."""


def _parquet(path: Path, decode: Decode | None) -> Rows:
    def rows() -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(path) as file:
            yield from _of_batches(path, file.iter_batches(batch_size=64))

    try:
        num_rows = pq.read_metadata(path).num_rows
    except _DAMAGE as error:
        raise CorruptFile(f"{path} is not a parquet file: {error}") from error
    return Rows(kind="parquet file", rows=rows(), decode=decode, num_rows=num_rows)


def _arrow(path: Path, decode: Decode | None) -> Rows:
    try:
        source = pa.memory_map(str(path))
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
        require_sound(table)
        batches = table.to_batches(max_chunksize=64)
    except _DAMAGE as error:
        raise CorruptFile(f"{path} is not an Arrow file: {error}") from error
    rows = _of_batches(path, batches)
    return Rows(kind="Arrow file", rows=rows, decode=decode, num_rows=table.num_rows)


def _of_batches(path: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    try:
        for batch in batches:
            yield from batch.to_pylist()
    except _DAMAGE as error:
        raise CorruptFile(f"{path} is damaged: {error}; download or write it again") from error


def _json_lines(path: Path, decode: Decode | None) -> Rows:
    def rows() -> Iterator[dict[str, Any]]:
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                yield _record(path, number, line)

    return Rows(kind="jsonl file", rows=rows(), decode=decode)


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path}: line {number + 1} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise CorruptFile(f"{path}: line {number + 1} is a {type(record).__name__}, not an object")
    return record


def _yaml(path: Path, decode: Decode | None, variables: Mapping[str, Any]) -> Rows:
    """A stream, if the file reads as its config, otherwise a recipe."""
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        plain = None  # recipes have lines and tags that plain YAML does not have
    if isinstance(plain, dict) and {"data", "train"} <= plain.keys():
        return _stream(path, decode)
    return _recipe(path, decode, variables)


def _stream(path: Path, decode: Decode | None) -> Rows:
    from quire.config import load_options
    from quire.stream import StreamConfig
    from quire.stream.chomp import config_tokenizer

    config = load_options(StreamConfig, path)
    if decode is None:
        decode = getattr(config_tokenizer(config), "decode", None)
    size = config.train.seq_len
    return Rows(kind="stream", rows=_stream_rows(config), decode=decode, max_length=size)


def _stream_rows(config: StreamConfig) -> Iterator[RowView]:
    from quire.stream import open_stream

    number = 0
    with open_stream(config) as stream:
        for batch in stream:
            for row in batch_views(batch.to_dict()):
                if len(row.input_ids):  # a row of padding fills the last batch
                    yield replace(row, number=number)
                    number += 1


def _recipe(path: Path, decode: Decode | None, variables: Mapping[str, Any]) -> Rows:
    from quire.compat.recipes import load_recipe

    targets = load_recipe(path, variables)
    if "train_dataset" not in targets:
        raise InvalidOption(
            f"{path} has the targets {', '.join(map(str, targets))[:200]} but no train_dataset to "
            "show; name a recipe that has one"
        )
    dataset = targets["train_dataset"]
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__iter__")):
        raise InvalidOption(
            f"{path}: train_dataset is a {type(dataset).__name__} but must hold rows; make it a "
            "dataset, or a call that returns one"
        )
    if decode is None and "tokenizer" in targets:
        decode = getattr(as_tokenizer(targets["tokenizer"]), "decode", None)
    return Rows(kind="recipe", rows=dataset, decode=decode, num_rows=len(dataset))


def decoder(tokenizer: TokenizerLike) -> Decode:
    """A function from tokens to text, which refuses tokens that are not in the vocabulary."""
    known = as_tokenizer(tokenizer)
    decode: Decode | None = getattr(known, "decode", None)
    if decode is None:
        raise InvalidOption(
            f"the tokenizer {tokenizer!r} cannot decode tokens; name another one, or show ids with "
            "--tokenized"
        )
    most = known.vocab_size or 1 << 31

    def decode_known(tokens: list[int]) -> str:
        wrong = next((token for token in tokens if not 0 <= token < most), None)
        if wrong is not None:  # which tokenizers skip without an error
            raise InvalidRow(
                f"token id {wrong} is not in the vocabulary of the tokenizer {tokenizer!r}, whose "
                f"ids end at {most - 1}; name the tokenizer of the data, or show ids with "
                "--tokenized"
            )
        return decode(tokens)

    return decode_known


_FILES: dict[str, Callable[[Path, Decode | None], Rows]] = {
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".jsonl": _json_lines,
}
