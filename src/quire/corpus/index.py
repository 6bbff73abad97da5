"""Index-only outputs: their documents, without tokens, and the plans that are made of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.corpus.corpus_index import CorpusIndex
from quire.corpus.encoding import require_fitting
from quire.corpus.job import shard_seed
from quire.corpus.lock import writer_lock
from quire.corpus.manifest import PackResult, differences, write_manifest
from quire.corpus.options import ROW_OPTIONS, CorpusOptions
from quire.corpus.output import PLANS, WORK, sweep, sweep_plans, write_errors
from quire.corpus.shards import DOCUMENT_ID, LENGTH
from quire.dataset.rows import TARGETS, target_flags
from quire.dataset.supervision import counts_before, supervised_by_labels
from quire.documents import Documents
from quire.errors import CorruptFile, InvalidOption, OutputError, unknown_name
from quire.files import sha256_of
from quire.formats.fingerprints import fingerprint_of_file
from quire.ledger import Ledger, Tally, TokenTally
from quire.options.names import option
from quire.packed.manifest import MANIFEST, is_in_place, is_indexed, read_manifest
from quire.plan import Plan, plan_documents, plan_options
from quire.plan.fragments import Fragments
from quire.storage import AnyPath, Named, RemotePath, as_path

IntArray = npt.NDArray[np.int64]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentShard:
    """A shard of documents."""

    path: AnyPath
    documents: int
    tokens: int
    ledger: Ledger

    @classmethod
    def of_manifest(cls, out: AnyPath, entry: Mapping[str, Any]) -> DocumentShard:
        """The shard of an entry of the manifest."""
        return cls(
            path=out / entry["file"],
            documents=int(entry["documents"]),
            tokens=int(entry["tokens"]),
            ledger=Ledger.from_dict(entry["ledger"]),
        )

    def lengths(self) -> IntArray:
        """The tokens of every document."""
        lengths: IntArray = self._read(LENGTH).to_numpy()
        if len(lengths) != self.documents or int(lengths.sum()) != self.tokens:
            raise CorruptFile(
                f"{self.path} has {len(lengths)} documents with {int(lengths.sum())} tokens, but "
                f"the manifest says {self.documents} with {self.tokens}; pack it again"
            )
        return lengths

    def ids(self) -> IntArray:
        """The id of every document."""
        ids: IntArray = self._read(DOCUMENT_ID).to_numpy()
        return ids

    def labelled(self) -> Documents:
        """The documents with only their labels."""
        column = self._read("labels")
        lengths = pc.list_value_length(column).to_numpy().astype(np.int64)
        return Documents(
            columns={"labels": pc.list_flatten(column).combine_chunks()},
            offsets=np.cumsum(lengths) - lengths,
            lengths=lengths,
            numbers=np.arange(len(lengths)),
        )

    def targets(self, names: Sequence[str]) -> npt.NDArray[np.bool]:
        """Whether each token of all documents is a target of the loss, by these columns."""
        table = pa.table({name: self._read(name) for name in names})
        return np.concatenate([np.zeros(0, np.bool), *target_flags(table, names)])

    def _read(self, name: str) -> pa.ChunkedArray:
        try:
            source = self.path.arrow_file() if isinstance(self.path, RemotePath) else self.path
            return pq.read_table(source, columns=[name], partitioning=None)[name]
        except (OSError, pa.ArrowException) as error:
            if isinstance(self.path, RemotePath):
                self.path.raise_if_store_failed(error)
            raise CorruptFile(f"{self.path} cannot be read: {error}; pack it again") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentIndex:
    """All documents of an output, in input order."""

    shards: Sequence[DocumentShard]
    has_prefix: bool
    """Whether every fragment follows a BOS, which shards do not contain."""
    end_with_eos: bool
    has_labels: bool
    targets: Sequence[str]
    """The columns that say which tokens are targets of the loss."""
    files: Sequence[str]
    """The names of the inputs."""

    @classmethod
    def of_manifest(cls, out: AnyPath, manifest: Mapping[str, Any]) -> DocumentIndex:
        """The index of an output that this manifest describes."""
        about = manifest["documents"]
        return cls(
            shards=[DocumentShard.of_manifest(out, entry) for entry in manifest["shards"]],
            has_prefix=about["opening"] is not None,
            end_with_eos=about["end_with_eos"],
            has_labels=about["has_labels"],
            targets=[name for name in TARGETS if name in _columns(manifest)],
            files=[entry["name"] for entry in manifest["inputs"]],
        )

    def plan(self, options: CorpusOptions) -> Plan:
        """The rows of all documents together.

        They are the rows of `pack_corpus` with a single partition.
        """
        complete = plan_options(
            options,
            int(self.has_prefix),
            self.end_with_eos,
            seed=shard_seed(options.seed, 0, 0),
        )
        lengths = np.concatenate([shard.lengths() for shard in self.shards])
        if options.overlong == "error" and lengths.max(initial=0) > complete.max_fragment:
            ids = np.concatenate([shard.ids() for shard in self.shards])
            require_fitting(lengths, complete.max_fragment, ids, self.files)
        supervised = self._supervised if self.has_labels else None
        return plan_documents(lengths, complete, supervised)

    def _supervised(self, fragments: Fragments) -> npt.NDArray[np.bool]:
        """Which fragments have trained tokens; reads the labels of one shard at a time."""
        edges = np.cumsum([0, *(shard.documents for shard in self.shards)])
        order = np.argsort(fragments.documents, kind="stable")
        cuts = np.searchsorted(fragments.documents[order], edges)
        found = np.zeros(len(fragments), dtype=bool)
        for number, shard in enumerate(self.shards):
            which = order[cuts[number] : cuts[number + 1]]
            judge = supervised_by_labels(shard.labelled()) if len(which) else None
            if judge is not None:
                found[which] = judge(_from(fragments.take(which), int(edges[number])))
        return found

    def ledger(self, plan: Plan) -> Ledger:
        """What became of every record: skipped before planning, or counted by the plan."""
        before = sum((shard.ledger for shard in self.shards), Ledger())
        documents, tokens = before.documents, before.tokens
        dropped = Ledger(
            documents=Tally(input=documents.num_dropped, dropped=documents.dropped),
            tokens=TokenTally(input=tokens.num_dropped, dropped=tokens.dropped),
        )
        trained = Ledger(tokens=TokenTally(trained=self._trained(plan)))
        return (dropped + plan.ledger + trained).check()

    def _trained(self, plan: Plan) -> int | None:
        """The targets of the loss in the rows of a plan; reads one shard's at a time."""
        if not self.targets:
            return None
        found, first = 0, 0
        for shard in self.shards:
            lengths = shard.lengths()
            offsets = np.cumsum(lengths) - lengths
            here = (plan.documents >= first) & (plan.documents < first + len(lengths))
            at = offsets[plan.documents[here] - first]
            # Without a prefix, a fragment's own first token follows another document.
            starts = plan.starts[here].astype(np.int64) + (not self.has_prefix)
            counts = counts_before(shard.targets(self.targets))
            found += int((counts(at + plan.stops[here]) - counts(at + starts)).sum())
            first += len(lengths)
        return found


def _columns(manifest: Mapping[str, Any]) -> Collection[str]:
    """The per-token columns of documents."""
    return {
        *manifest.get("columns", ()),
        *(["labels"] if manifest["documents"]["has_labels"] else []),
    }


def _from(fragments: Fragments, first: int) -> Fragments:
    return Fragments(
        documents=fragments.documents - first, starts=fragments.starts, stops=fragments.stops
    )


def plan_name(options: CorpusOptions, named: str | None = None) -> str:
    """The name of a plan: as given, or made of strategy and length.

    >>> plan_name(CorpusOptions(max_length=4096))
    'exact_fit-4096'
    """
    if named is None:
        strategy = re.sub(r"[^A-Za-z0-9_]", "_", options.strategy)
        return f"{strategy}-{options.max_length}"
    if not isinstance(named, str) or not _NAME.fullmatch(named):
        raise InvalidOption(
            f"a plan cannot be named {named!r:.80}; use letters, digits, '_', '-' and '.'"
        )
    return named


def index_of(out: AnyPath, manifest: Mapping[str, Any]) -> DocumentIndex | CorpusIndex:
    """The documents that the plans of an output are for."""
    kind = CorpusIndex if is_in_place(manifest) else DocumentIndex
    return kind.of_manifest(out, manifest)


def write_plan(
    out: AnyPath, name: str, index: DocumentIndex | CorpusIndex, options: CorpusOptions
) -> dict[str, Any]:
    """Plan all documents and write the plan; returns its entry of the manifest."""
    plan = index.plan(options)
    (out / PLANS).mkdir(exist_ok=True)
    file = f"{PLANS}/{name}.arrow"
    saved = _save(plan, out / file)
    return {
        "name": name,
        "file": file,
        **saved,
        "options": options.row_options(),
        "rows": plan.num_rows,
        "tokens": int(plan.row_lengths.sum(dtype=np.int64)),
        "content": plan.content,
        "ledger": index.ledger(plan).to_dict(),
    }


def _save(plan: Plan, path: AnyPath) -> dict[str, Any]:
    """What the manifest records of the file, which is written as a whole."""
    if isinstance(path, RemotePath):
        with path.written_whole() as local:
            return _save(plan, local)
    plan.save(path)
    fingerprint, size, _ = fingerprint_of_file(path)
    return {"sha256": sha256_of(path), "bytes": size, "fingerprint": fingerprint}


def replan(
    path: Named,
    *,
    name: str | None = None,
    **changes: Any,  # noqa: ANN401 - declared once, at CorpusOptions
) -> PackResult:
    """Make another plan for an index-only output, without reading text or moving tokens.

    ``changes`` are those options of `pack_corpus` that shape rows (``max_length``, ``strategy``,
    ``overlong``, ``stride``, ``min_length``, ``min_fragment``, ``max_documents_per_row``,
    ``shuffle``, ``seed``); the others keep the values that the corpus was packed with. ``name``
    defaults to strategy and length; ``PackedDataset(path, plan=name)`` opens it. A plan that
    exists already is left as it is. Memory: the lengths and the plan.

    >>> import tempfile, quire
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "abc"}\\n{"text": "de"}\\n')
    >>> out = folder / "packed"
    >>> packed = quire.pack_corpus([folder / "a.jsonl"], out, "byte", max_length=8, index_only=True)
    >>> again = replan(out, max_length=16)
    >>> packed.plan, packed.num_rows, again.plan, again.num_rows
    ('exact_fit-8', 2, 'exact_fit-16', 1)
    """
    out = as_path(path)
    _indexed_manifest(out)  # before a lock is created in a folder that is not an output
    with write_errors(out), writer_lock(out / WORK, out):
        sweep(out)
        manifest = _indexed_manifest(out)
        sweep_plans(out, manifest)
        options = _changed(manifest["options"], changes)
        chosen = plan_name(options, name)
        there = [entry for entry in manifest["plans"] if entry["name"] == chosen]
        if there:
            _require_same_rows(out, there[0], options)
            return PackResult(path=out, manifest=manifest, plan=chosen, was_complete=True)
        entry = write_plan(out, chosen, index_of(out, manifest), options)
        manifest["plans"].append(entry)
        manifest = write_manifest(out / MANIFEST, manifest)
    return PackResult(path=out, manifest=manifest, plan=chosen)


def _indexed_manifest(out: AnyPath) -> dict[str, Any]:
    manifest = read_manifest(out)
    if not is_indexed(manifest):
        raise InvalidOption(
            f"{out} holds packed rows, not documents; only outputs packed with "
            f"{option('index_only')} can be planned again"
        )
    return manifest


def _changed(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> CorpusOptions:
    for name in changes:
        if name not in ROW_OPTIONS:
            raise unknown_name("option of a plan", name, ROW_OPTIONS)
    known = {field.name for field in fields(CorpusOptions)}
    plain = {name: value for name, value in stored.items() if name in known}
    return CorpusOptions(**{**plain, **changes})


def _require_same_rows(out: AnyPath, there: Mapping[str, Any], options: CorpusOptions) -> None:
    known, given = map(options.with_defaults, (there["options"], options.row_options()))
    differing = list(differences(known, given))
    if differing:
        raise OutputError(
            f"{out} already has another plan {there['name']!r}: {'; '.join(differing)}; give this "
            "one another name"
        )
