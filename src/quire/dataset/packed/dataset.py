"""`PackedDataset`: the rows of a packed dataset by number."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.dataset.packed.mapped import FOLDER, open_mapped
from quire.errors import CorruptFile, InvalidOption, unknown_name
from quire.ledger import Ledger

if TYPE_CHECKING:
    from quire.dataset.packed.loader import PackedLoader
    from quire.dataset.packed.torch_view import TorchRows

Row: TypeAlias = dict[str, npt.NDArray[Any]]
_SOURCE = ("document_ids", "document_offsets")
_SHARD = re.compile(r"data/shard-\d{5,}-\d{3,}\.parquet")


class PackedDataset:
    """Rows of a folder that `quire pack` wrote, by number, as numpy views of mapped memory.

    The first opening makes the mapped form, from shards whose checksums it compares; later ones
    take no time. ``columns`` are those that a row holds, by default all but the source of its
    fragments. A torch `DataLoader`, `torchdata` and grain take it as it is.

    >>> import tempfile
    >>> from quire.dataset.corpus import pack_corpus
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("abc")
    >>> _ = pack_corpus([folder / "a.txt"], folder / "packed", "byte", max_length=8)
    >>> PackedDataset(folder / "packed")[0]["input_ids"].tolist()
    [1, 100, 101, 102, 2]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.manifest = read_manifest(self.path)
        self._arguments = (columns, cache_dir)
        folder = self.path / FOLDER if cache_dir is None else Path(cache_dir) / self.fingerprint
        tables = open_mapped(self.path, self.manifest["shards"], folder)
        batches = [batch for table in tables for batch in table.to_batches() if batch.num_rows]
        self._first_rows = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self.columns = _columns(tables, columns)
        self._lists = [
            {name: _lists(batch.column(name)) for name in self.columns} for batch in batches
        ]

    @property
    def fingerprint(self) -> str:
        """What tells this dataset from another one: a hash over the hashes of its shards."""
        shards = [shard["sha256"] for shard in self.manifest["shards"]]
        return hashlib.sha256(json.dumps(shards).encode()).hexdigest()[:32]

    @property
    def max_length(self) -> int:
        """Places in a row."""
        return int(self.manifest["options"]["max_length"])

    @property
    def ledger(self) -> Ledger:
        """What became of every document and token when it was packed."""
        return Ledger.from_dict(self.manifest["ledger"])

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def __getitem__(self, row: int) -> Row:
        number = range(len(self))[row]
        batch = int(np.searchsorted(self._first_rows, number, side="right")) - 1
        place = number - int(self._first_rows[batch])
        return {
            name: values[offsets[place] : offsets[place + 1]]
            for name, (values, offsets) in self._lists[batch].items()
        }

    def __getitems__(self, rows: Sequence[int]) -> list[Row]:
        """Several rows; torch asks in this way."""
        return [self[row] for row in rows]

    def __iter__(self) -> Iterator[Row]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"PackedDataset({str(self.path)!r}, {len(self)} rows of {self.max_length})"

    def __reduce__(self) -> tuple[Callable[..., PackedDataset], tuple[Any, ...]]:
        # Workers map the files themselves.
        return _reopen, (self.path, *self._arguments)

    def torch(self) -> TorchRows:
        """The same rows as torch tensors."""
        from quire.dataset.packed.torch_view import TorchRows

        return TorchRows(self)

    def loader(
        self,
        global_batch: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        epoch: int = 0,
        shuffle: bool = True,
        balance: bool = False,
        collate: Callable[[list[Row]], Any] | None = None,
    ) -> PackedLoader:
        """One rank's share of batches whose sequence is the same for every world size."""
        from quire.dataset.packed.loader import LoaderOptions, PackedLoader

        options = LoaderOptions(
            global_batch=global_batch,
            rank=rank,
            world_size=world_size,
            seed=seed,
            shuffle=shuffle,
            balance=balance,
        )
        return PackedLoader(self, options, epoch=epoch, collate=collate)


def _reopen(path: Path, columns: Sequence[str] | None, cache_dir: str | None) -> PackedDataset:
    return PackedDataset(path, columns=columns, cache_dir=cache_dir)


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of an output, if it is one, and names nothing outside of its folder."""
    file = path / "manifest.json"
    if not file.is_file():
        raise InvalidOption(f"{path} has no manifest.json: it is unfinished, or no packed dataset")
    try:
        manifest = json.loads(file.read_bytes())
        version = manifest["format"]["version"]
        names = [shard["file"] for shard in manifest["shards"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(f"{file} is no manifest: {type(error).__name__} {error}") from error
    if version != 1:
        raise CorruptFile(f"{file} has version {version!r} but this quire reads 1; upgrade quire")
    for name in names:
        if not isinstance(name, str) or not _SHARD.fullmatch(name) or (path / name).is_symlink():
            raise CorruptFile(f"{file} names {name!r:.80}, which is no shard of its folder")
    return dict(manifest)


def _columns(tables: Sequence[pa.Table], wanted: Sequence[str] | None) -> list[str]:
    known = tables[0].column_names
    for name in wanted or ():
        if name not in known:
            raise unknown_name("column", name, known)
    return list(wanted) if wanted is not None else [n for n in known if n not in _SOURCE]


def _lists(column: pa.ListArray) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    return column.values.to_numpy(), column.offsets.to_numpy()
