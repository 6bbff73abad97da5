"""Rows of a plan over a corpus that another system wrote: gathered from its files when read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import CorruptFile, SourceChanged, StorageError
from quire.files import sha256_of, whole_file
from quire.formats.corpora import open_corpus
from quire.formats.fingerprints import fingerprint_of_file
from quire.formats.token_corpus import FEW, TokenCorpus
from quire.packed.rows import SOURCE, STARTS, Row, chosen_columns
from quire.plan.plan_file import open_plan
from quire.storage import AnyPath, RemotePath, as_path, each

Ints = npt.NDArray[np.int64]
EDGES = "documents.arrow"
"""Beside the manifest: where documents are in files without an index."""
_EDGES = pa.large_list(pa.int64())


def record_of(corpus: TokenCorpus, out: AnyPath) -> dict[str, Any]:
    """What the manifest of an output records of the corpus that its plans are for."""
    files = [{**entry, "relative": _relative(entry["path"], out)} for entry in corpus.entries()]
    named = dict.fromkeys(file.named for file in corpus.files)
    return {
        "format": corpus.format,
        "fingerprint": corpus.fingerprint(),
        "dropped": dict(corpus.ledger.tokens.dropped),
        "files": files,
        "named": [_number(files, path) for path in named],
        "edges": _write_edges(corpus, out),
    }


def open_recorded(out: AnyPath, manifest: Mapping[str, Any]) -> TokenCorpus:
    """The corpus of an output; raises if a file is missing or has changed.

    Files that are not where they were are looked for relative to the output.
    """
    record = manifest["corpus"]
    if any(number >= len(record["files"]) for number in record["named"]):
        raise CorruptFile(f"{out}: the manifest names files that it does not list; restore it")
    remote = any("://" in str(entry["path"]) for entry in record["files"])
    paths = each(lambda entry: _unchanged(out, entry), record["files"], at_once=remote)
    known = None if record["edges"] is None else _read_edges(out, record, paths)
    named = [paths[number] for number in record["named"]]
    return open_corpus(named, record["format"], known=known)


def _number(files: Sequence[Mapping[str, Any]], path: AnyPath) -> int:
    return [entry["path"] for entry in files].index(str(path.absolute()))


def _write_edges(corpus: TokenCorpus, out: AnyPath) -> dict[str, str] | None:
    """Write where documents are if all tokens were read to find out, so that it is done once."""
    known = {
        str(file.path.absolute()): file.edges for file in corpus.files if file.edges is not None
    }
    if not known:
        return None
    table = pa.table({"path": list(known), "edges": pa.array(list(known.values()), _EDGES)})
    with (
        whole_file(out / EDGES) as temporary,
        temporary.open("wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    return {"file": EDGES, "sha256": str(sha256_of(out / EDGES))}


def _read_edges(
    out: AnyPath, record: Mapping[str, Any], paths: Sequence[AnyPath]
) -> dict[str, Ints]:
    file = out / EDGES
    if record["edges"].get("file") != EDGES or sha256_of(file) != record["edges"].get("sha256"):
        raise CorruptFile(f"{file}, which says where documents are, was changed; plan again")
    with pa.ipc.open_file(pa.BufferReader(file.read_bytes())) as reader:
        table = reader.read_all()
    now = {entry["path"]: path for entry, path in zip(record["files"], paths, strict=True)}
    edges = (table["edges"].chunk(0)[row].values.to_numpy() for row in range(table.num_rows))
    found = zip(table["path"].to_pylist(), edges, strict=True)
    return {str(now[path].absolute()): values for path, values in found}


def _relative(path: str, out: AnyPath) -> str | None:
    if "://" in path or isinstance(out, RemotePath):
        return None
    return os.path.relpath(path, out)


def _unchanged(out: AnyPath, entry: Mapping[str, Any]) -> AnyPath:
    path = as_path(entry["path"])
    if isinstance(path, Path) and not path.exists() and entry["relative"] is not None:
        beside = Path(os.path.normpath(out / entry["relative"]))
        path = beside if beside.exists() else path
    try:
        fingerprint, size, _ = fingerprint_of_file(path)
    except StorageError:
        raise
    except OSError as error:
        raise SourceChanged(
            f"{path}, which the plans of {out} are for, cannot be read: {error.strerror or error}; "
            "restore it, or plan again into a new output"
        ) from error
    if (size, fingerprint) != (entry["bytes"], entry["fingerprint"]):
        change = f"it had {entry['bytes']} bytes and now has {size}"
        raise SourceChanged(
            f"{path} changed after the plans of {out} were made: "
            f"{change if size != entry['bytes'] else 'its bytes differ'}; restore it, or plan "
            "again into a new output"
        )
    return path


class CorpusRows:
    """Rows that a plan gathers from the files of another system.

    Memory: what the plan and the index take up if they are not mapped; tokens stay in the files.
    """

    def __init__(self, corpus: TokenCorpus, plan: Path, wanted: Sequence[str] | None) -> None:
        self.columns = chosen_columns([*corpus.columns, STARTS, *SOURCE], wanted)
        self._corpus, self._plan = corpus, open_plan(plan, corpus.lengths())
        # A memoryview returns a number in half the time of an array.
        self._offsets = memoryview(self._plan.row_offsets)  # type: ignore[arg-type]
        arrays = (self._plan.documents, self._plan.starts, self._plan.stops)
        self._fragments = [memoryview(array) for array in arrays]  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._plan.num_rows

    def __getitem__(self, row: int) -> Row:
        self._plan.check(row)
        first, last = self._offsets[row], self._offsets[row + 1]
        if last - first > FEW:
            return self.many([row])[0]
        documents, starts, stops = self._fragments
        spans = list(zip(documents[first:last], starts[first:last], stops[first:last], strict=True))
        values: Row = {}
        for name in self.columns:
            if name == STARTS:
                values[name] = _starts(spans)
            elif name == "document_ids":
                numbers = np.array(documents[first:last])
                values[name] = _read_only(self._corpus.document_ids(numbers))
            elif name == "document_offsets":
                values[name] = _read_only(np.array(starts[first:last], np.int64))
            else:
                values[name] = self._corpus.gather_few(name, spans)
        return values

    def many(self, rows: Sequence[int]) -> list[Row]:
        """Several rows, gathered together: views of one array for each column."""
        numbers, plan = np.asarray(rows, dtype=np.int64), self._plan
        plan.check_all(rows)
        firsts, lasts = plan.row_offsets[numbers], plan.row_offsets[numbers + 1]
        counts = (lasts - firsts).astype(np.int64)
        cuts = _edges(counts)  # where the fragments of a row begin and end
        fragments = np.arange(cuts[-1]) + np.repeat(firsts - cuts[:-1], counts)
        documents = plan.documents[fragments]
        starts, stops = plan.starts[fragments], plan.stops[fragments]
        edges = _edges(stops - starts)
        found: list[Row] = [{} for _ in rows]
        values: npt.NDArray[Any]
        for name in self.columns:
            if name == STARTS:
                values = (edges[:-1] - np.repeat(edges[cuts[:-1]], counts)).astype(np.int32)
            elif name == "document_ids":
                values = self._corpus.document_ids(documents)
            elif name == "document_offsets":
                values = starts.astype(np.int64)
            else:
                values = self._corpus.gather(name, documents, starts, stops)
            _deal(found, name, values, edges[cuts] if name in self._corpus.columns else cuts)
        return found


def _deal(rows: Sequence[Row], name: str, values: npt.NDArray[Any], edges: Ints) -> None:
    """Give each row its part of the values of a column."""
    _read_only(values)
    start = 0
    for row, stop in zip(rows, edges[1:].tolist(), strict=True):
        row[name] = values[start:stop]
        start = stop


def _starts(spans: Sequence[tuple[int, int, int]]) -> npt.NDArray[np.int32]:
    """Where each of these parts begins in its row."""
    at, starts = 0, []
    for _, start, stop in spans:
        starts.append(at)
        at += stop - start
    found = np.array(starts, np.int32)
    found.setflags(write=False)
    return found


def _edges(counts: npt.NDArray[np.integer]) -> Ints:
    """Where parts of these sizes begin, and where the last one ends."""
    edges = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=edges[1:])
    return edges


def _read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, as rows of shards are."""
    values.setflags(write=False)
    return values
