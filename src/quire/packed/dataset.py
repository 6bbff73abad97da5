"""`PackedDataset`: the rows of a packed dataset by number."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from quire.errors import CorruptFile, InvalidOption, missing_dependency
from quire.formats.fingerprints import fingerprint_of_file
from quire.ledger import Ledger
from quire.markup import block, figures, row_bar
from quire.options import require_path
from quire.packed.in_place import CorpusRows, open_recorded
from quire.packed.manifest import chosen_plan, is_in_place, read_manifest, shard_columns
from quire.packed.mapped import (
    FOLDER,
    MappedShard,
    ShardCache,
    default_cache,
    open_mapped,
    require_sha256,
)
from quire.packed.rows import SOURCE, STARTS, PlannedRows, RemoteRows, Row, RowSource, ShardRows
from quire.plan import Plan
from quire.storage import Named, RemotePath, as_path, each

if TYPE_CHECKING:
    from datasets import Dataset

    from quire.packed.loader import PackedLoader
    from quire.packed.torch_datasets import TorchRows

__all__ = ["PackedDataset", "Row"]


class PackedDataset:
    """Rows of a folder that `quire pack` wrote, by number, as numpy views of mapped memory.

    Opening it for the first time verifies the shards and converts them to a mapped form; later
    openings are instant. Of a folder in a store (a URI), a shard is downloaded when one of its rows
    is first read, and cached in ``cache_dir`` (by default in the user's cache) for all processes of
    the machine.

    ``columns`` selects the columns of a row, by default all except the sources of its fragments.
    For an index-only output, ``plan`` names the plan to use, by default the one that it was packed
    with; its rows are gathered when they are read. A torch `DataLoader`, `torchdata` and grain
    accept it as a map-style dataset.

    >>> import tempfile
    >>> from quire.corpus import pack_corpus
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("abc")
    >>> _ = pack_corpus([folder / "a.txt"], folder / "packed", "byte", max_length=8)
    >>> PackedDataset(folder / "packed")[0]["input_ids"].tolist()
    [1, 100, 101, 102, 2]
    """

    def __init__(
        self,
        path: Named,
        *,
        columns: Sequence[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        plan: str | None = None,
    ) -> None:
        self.path = as_path(path)
        self.manifest = read_manifest(self.path)
        wanted = None if columns is None else _listed(columns)
        if cache_dir is not None:
            require_path("cache_dir", cache_dir)
        self._arguments = (wanted, cache_dir, plan)
        self._entry = chosen_plan(self.path, self.manifest, plan)
        self._shards: ShardCache | None = None
        self._mapped: list[MappedShard] = []
        self._rows = self._open(wanted, cache_dir)
        self._inside = range(len(self._rows))
        self.columns = self._rows.columns

    def _open(
        self, columns: Sequence[str] | None, cache_dir: str | os.PathLike[str] | None
    ) -> RowSource:
        shards = self.manifest["shards"]
        if isinstance(self.path, RemotePath):
            cache = default_cache() if cache_dir is None else Path(cache_dir)
            self._shards = ShardCache(self.path, shards, cache)
            if self._entry is None:
                counts = [int(shard["rows"]) for shard in shards]
                return RemoteRows(self._shards, counts, shard_columns(self.manifest), columns)
            if is_in_place(self.manifest):
                corpus = open_recorded(self.path, self.manifest)
                return CorpusRows(corpus, self._shards.plan(self._entry), columns)
            # A plan covers all documents, so the rows of any rank come from all shards.
            plan = Plan.load(self._shards.plan(self._entry))
            return self._planned(self._shards.open_all(), plan, columns)
        if self._entry is not None and is_in_place(self.manifest):
            corpus = open_recorded(self.path, self.manifest)
            return CorpusRows(corpus, _plan_file(self.path, self._entry), columns)
        folder = self.path / FOLDER if cache_dir is None else Path(cache_dir) / self._hash_of_shards
        self._mapped = open_mapped(self.path, shards, folder)
        if self._entry is None:
            return ShardRows(self._mapped, columns)
        plan = Plan.load(_plan_file(self.path, self._entry))
        return self._planned(self._mapped, plan, columns)

    def _planned(
        self, shards: list[MappedShard], plan: Plan, columns: Sequence[str] | None
    ) -> PlannedRows:
        return PlannedRows(shards, plan, self.manifest["documents"]["opening"], columns)

    def with_sources(self) -> PackedDataset:
        """The same rows, with the source of every fragment if it was kept."""
        kept = [*shard_columns(self.manifest), *(SOURCE if self._entry else ())]
        wanted = list(dict.fromkeys([*self.columns, *(name for name in SOURCE if name in kept)]))
        if wanted == self.columns:
            return self
        _, cache_dir, plan = self._arguments
        return PackedDataset(self.path, columns=wanted, cache_dir=cache_dir, plan=plan)

    def fetch(self, rows: Iterable[int] | None = None) -> int:
        """Download the shards of these rows, or all, before they are used; returns their number.

        It has an effect only for a dataset in a store.
        """
        if self._shards is None:
            return len(self.manifest["shards"])
        wanted = range(len(self._shards)) if rows is None else self._shards_of(rows)
        return len(each(self._shards.fetch, wanted, at_once=True))

    def _shards_of(self, rows: Iterable[int]) -> Sequence[int]:
        if not isinstance(self._rows, RemoteRows):
            return range(len(self.manifest["shards"]))
        return sorted({self._rows.shard_of(range(len(self))[row]) for row in rows})

    @property
    def fingerprint(self) -> str:
        """A hash that identifies this dataset, over the hashes of its files."""
        if self._entry is None:
            return self._hash_of_shards
        both = f"{self._hash_of_shards} {self._entry['sha256']}"
        return hashlib.sha256(both.encode()).hexdigest()[:32]

    @property
    def _hash_of_shards(self) -> str:
        if is_in_place(self.manifest):
            return str(self.manifest["corpus"]["fingerprint"])[:32]
        shards = [shard["sha256"] for shard in self.manifest["shards"]]
        return hashlib.sha256(json.dumps(shards).encode()).hexdigest()[:32]

    @property
    def plan(self) -> str | None:
        """The name of the plan; None if the shards hold rows."""
        return None if self._entry is None else str(self._entry["name"])

    @property
    def plans(self) -> list[str]:
        """The names of all plans of this dataset."""
        return [str(entry["name"]) for entry in self.manifest.get("plans", [])]

    @property
    def max_length(self) -> int:
        """The most tokens in a row."""
        return int((self._entry or self.manifest)["options"]["max_length"])

    @property
    def ledger(self) -> Ledger:
        """What became of every document and token when it was packed."""
        return Ledger.from_dict((self._entry or self.manifest)["ledger"])

    def __len__(self) -> int:
        return len(self._inside)

    @overload
    def __getitem__(self, row: int) -> Row: ...

    @overload
    def __getitem__(self, row: slice) -> list[Row]: ...

    def __getitem__(self, row: int | slice) -> Row | list[Row]:
        if isinstance(row, slice):
            return self.__getitems__(self._inside[row])
        try:
            number = self._inside[row]
        except IndexError:
            raise self._no_row(row) from None
        return self._rows[number]

    def _no_row(self, row: int) -> IndexError:
        return IndexError(f"{self.path} has no row {row}: it has {len(self)} rows")

    def __getitems__(self, rows: Sequence[int]) -> list[Row]:
        """Several rows; torch's DataLoader calls this."""
        if isinstance(self._rows, CorpusRows):
            inside = self._inside
            try:
                numbers = [inside[row] for row in rows]
            except IndexError:
                size = len(self)
                raise self._no_row(next(n for n in rows if not -size <= n < size)) from None
            return self._rows.many(numbers)
        return [self[row] for row in rows]

    def __iter__(self) -> Iterator[Row]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        return f"PackedDataset({str(self.path)!r}, {len(self)} rows of {self.max_length})"

    def _repr_html_(self) -> str:
        ledger = self.ledger
        about = {
            "rows": len(self),
            "max_length": self.max_length,
            "documents": ledger.documents.emitted,
            "tokens": ledger.tokens.emitted,
            "padding": ledger.tokens.padding,
            "dropped documents": ledger.documents.num_dropped,
            **({} if ledger.tokens.trained is None else {"trained tokens": ledger.tokens.trained}),
            "columns": ", ".join(self.columns),
        }
        bars = (
            [] if self._shards is not None else [self._bar(row) for row in range(min(8, len(self)))]
        )
        return block([figures(f"PackedDataset {self.path}", about), *bars])

    def _bar(self, number: int) -> str:
        row = self._rows[number]
        edges = [*row.get(STARTS, []), len(row.get("input_ids", []))]
        spans = [(int(a), int(b), f"tokens {a}-{b - 1}") for a, b in pairwise(edges)]
        return row_bar(spans, self.max_length)

    def __reduce__(self) -> tuple[Callable[..., PackedDataset], tuple[Any, ...]]:
        # Workers map the files themselves, possibly in another working directory.
        columns, cache_dir, plan = self._arguments
        cache = None if cache_dir is None else Path(cache_dir).absolute()
        reopen = partial(PackedDataset, columns=columns, cache_dir=cache, plan=plan)
        return reopen, (self.path.absolute(),)

    def ray_data(self) -> Any:  # noqa: ANN401 - a ray.data.Dataset
        """The same rows and columns as a `ray.data.Dataset`, with one task per shard.

        Tasks read only the dataset's ``columns``, directly from its storage; the driver reads
        nothing. Rows come in any order unless ray is configured to preserve it.
        """
        from quire.packed.ray_dataset import ray_dataset

        return ray_dataset(self)

    def to_datasets(self, *, position_ids: bool = False, seq_lengths: bool = False) -> Dataset:
        """The same rows and columns as a `datasets.Dataset`, which TRL's SFTTrainer takes.

        It maps the same files, so nothing is copied, and processes that receive it map them again.
        ``position_ids`` and ``seq_lengths`` add boundaries in the forms that trainers read, as for
        `pack_dataset`; they are kept in memory. The rows of a plan are gathered once, into the
        cache of `datasets`.
        """
        try:
            from quire.packed.hf_dataset import hf_dataset
        except ModuleNotFoundError:
            raise missing_dependency("datasets", "PackedDataset.to_datasets", "hf") from None
        return hf_dataset(self, position_ids=position_ids, seq_lengths=seq_lengths)

    def mapped_table(self) -> pa.Table:
        """The rows of all shards as an Arrow table over mapped memory."""
        shards = self._mapped if self._shards is None else self._shards.open_all()
        return pa.concat_tables(shard.table for shard in shards).select(self.columns)

    def torch(self) -> TorchRows:
        """The same rows as torch tensors."""
        from quire.packed.torch_datasets import TorchRows

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
        sharded: bool = False,
        collate: Callable[[list[Row]], Any] | None = None,
    ) -> PackedLoader:
        """One rank's share of batches, whose sequence is the same for every world size.

        With ``sharded``, each rank reads one part of the dataset, shuffled within that part: of a
        dataset in a store, it downloads only the shards of its part.
        """
        from quire.packed.loader import LoaderOptions, PackedLoader

        options = LoaderOptions(
            global_batch=global_batch,
            rank=rank,
            world_size=world_size,
            seed=seed,
            shuffle=shuffle,
            balance=balance,
            sharded=sharded,
        )
        return PackedLoader(self, options, epoch=epoch, collate=collate)


def _listed(columns: Iterable[str]) -> list[str]:
    if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
        raise InvalidOption(
            f"columns is {columns!r} but must be a list of names, such as ['input_ids']"
        )
    return list(columns)


def _plan_file(path: Path, entry: Mapping[str, Any]) -> Path:
    """The file of a plan, unless it was changed.

    Its rows have checksums in the part that the fingerprint covers; to hash all of a large file
    would take seconds.
    """
    file = path / str(entry["file"])
    if "fingerprint" not in entry or not file.is_file():
        require_sha256(file, str(entry["sha256"]))
    elif fingerprint_of_file(file)[0] != entry["fingerprint"]:
        raise CorruptFile(f"{file} has other bytes than were written; plan again")
    return file
