"""Packed rows as a `ray.data` dataset: one task per shard, which reads only wanted columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile, missing_dependency
from quire.storage import AnyPath, RemotePath

if TYPE_CHECKING:
    from quire.packed.dataset import PackedDataset


def ray_dataset(dataset: PackedDataset) -> Any:  # noqa: ANN401 - a ray.data.Dataset
    """The dataset's rows and columns on a Ray cluster."""
    try:
        import ray.data
    except ModuleNotFoundError:
        raise missing_dependency("ray", "PackedDataset.ray_data", "ray") from None
    if dataset.plan is None:
        return ray.data.read_datasource(_datasource(dataset))
    return ray.data.range(len(dataset)).map_batches(_Gathered(dataset), batch_format="pyarrow")


@dataclass(frozen=True)
class _Gathered:
    """Rows of a plan: every worker opens the dataset once and gathers the requested rows."""

    dataset: PackedDataset

    def __call__(self, numbers: pa.Table) -> pa.Table:
        rows = self.dataset.__getitems__(numbers["id"].to_pylist())
        names = self.dataset.columns
        return pa.table({name: pa.array([row[name] for row in rows]) for name in names})


def _datasource(dataset: PackedDataset) -> Any:  # noqa: ANN401
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    # A task has another working directory.
    path, names = dataset.path.absolute(), list(dataset.columns)
    entries = [entry for entry in dataset.manifest["shards"] if entry["rows"]]

    class Packed(Datasource):
        """The manifest has all that a driver needs, so it makes no request to the store."""

        def estimate_inmemory_data_size(self) -> int:
            return sum(_size(entry, len(names)) for entry in entries)

        def get_read_tasks(self, parallelism: int, *limits: Any, **more: Any) -> list[Any]:  # noqa: ANN401
            return [ReadTask(_Shard(path, entry, names), about(entry)) for entry in entries]

    def about(entry: Mapping[str, Any]) -> Any:  # noqa: ANN401
        known = {"num_rows": entry["rows"], "size_bytes": _size(entry, len(names))}
        return BlockMetadata(**{f.name: known.get(f.name) for f in fields(BlockMetadata)})

    return Packed()  # type: ignore[no-untyped-call] # ray has no types


def _size(entry: Mapping[str, Any], columns: int) -> int:
    """The approximate size of a shard in memory."""
    return int(entry["tokens"]) * 4 * columns


@dataclass(frozen=True)
class _Shard:
    """Reads only the wanted columns of a shard, one row group at a time."""

    folder: AnyPath
    entry: Mapping[str, Any]
    names: list[str]

    def __call__(self) -> Iterator[pa.Table]:
        path = self.folder / self.entry["file"]
        rows = 0
        try:
            source = path.arrow_file() if isinstance(path, RemotePath) else path
            with pq.ParquetFile(source) as file:
                for group in range(file.metadata.num_row_groups):
                    table = file.read_row_group(group, columns=self.names)
                    rows += table.num_rows
                    yield table.select(self.names)
        except (OSError, pa.ArrowException) as error:
            if isinstance(path, RemotePath):
                path.raise_if_store_failed(error)
            raise CorruptFile(f"{path} cannot be read: {error}; pack it again") from error
        if rows != self.entry["rows"]:
            raise CorruptFile(
                f"{path} has {rows} rows but the manifest says {self.entry['rows']}; pack it again"
            )
