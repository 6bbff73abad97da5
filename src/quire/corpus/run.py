"""`pack_corpus`: inputs in, a packed dataset on disk out, exactly once, whatever happens."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from quire.corpus.commits import Commit, finished, read_commits, require_present
from quire.corpus.encoding import make_encoder
from quire.corpus.engines import Engine, choose_engine
from quire.corpus.index import DocumentIndex, plan_name, write_plan
from quire.corpus.job import PartitionJob, Progress, Report, too_many_bad
from quire.corpus.manifest import (
    make_header,
    make_index_manifest,
    make_manifest,
    read_header,
    require_same,
    write_bad_records,
)
from quire.corpus.options import CorpusOptions
from quire.corpus.output import (
    DATA,
    RUN,
    clear_work,
    discard_empty_run,
    opened_output,
    require_apart,
    require_complete,
    require_no_shards,
    sweep_plans,
    write_errors,
)
from quire.corpus.partitions import Partition, make_partitions
from quire.corpus.preparation import prepare
from quire.corpus.result import PackResult
from quire.corpus.tokenizer import chat_template_of
from quire.errors import InvalidOption, WorkerError, unknown_name
from quire.formats.files import as_list
from quire.formats.token_columns import require_column_names
from quire.ledger import Ledger
from quire.options import require_flag, require_integer
from quire.packed.manifest import MANIFEST, read_manifest, write_json, write_manifest
from quire.plan.strategies import registered_strategy
from quire.seals import checksum
from quire.storage import AnyPath, Named, RemotePath, as_path
from quire.text import TokenizerLike
from quire.text.fingerprint import tokenizer_fingerprint


@dataclass(frozen=True, kw_only=True)
class Start:
    """What is known when the work begins, for those who watch."""

    num_bytes: int
    """Text to be read, as far as it is known."""
    partitions: int
    resumed: int
    """Partitions that stand already."""


def pack_corpus(
    inputs: Iterable[Named],
    out: Named,
    tokenizer: TokenizerLike | None = None,
    *,
    workers: int | None = None,
    engine: Engine | str | None = None,
    resume: bool = False,
    max_bad_records: int = 0,
    on_start: Callable[[Start], None] | None = None,
    on_progress: Report | None = None,
    **options: Any,  # noqa: ANN401 - declared once, at CorpusOptions
) -> PackResult:
    """The corpus packed into parquet shards with a manifest; options are those of `CorpusOptions`.

    ``inputs`` are files, globs, folders and saved datasets; they and ``out`` may be local paths or
    URIs (s3://, gs://, hf://, what fsspec knows). With ``resume``, an unfinished output
    is continued, and a finished one is left as it is. With ``index_only``, documents and a plan of
    their rows are written instead of rows, and `replan` gives other rows. The bytes depend on the
    inputs, the tokenizer and the options alone, not on workers, engine or interruptions. Memory: a
    few times ``partition_size`` for each worker. More than one worker are started as new processes,
    so a script needs ``if __name__ == "__main__"``. With ``engine="ray"`` (or a `RayEngine`)
    partitions are tasks of a Ray cluster; ``workers`` is then how many run at a time.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "abc"}\\n{"text": "de"}\\n')
    >>> result = pack_corpus([folder / "a.jsonl"], folder / "packed", "byte", max_length=10)
    >>> result.num_rows, result.ledger.documents.emitted
    (1, 2)
    """
    require_flag("resume", resume)
    named = as_list(inputs)
    run = _Run(named, as_path(out), tokenizer, _options(options), max_bad_records, on_progress)
    chosen = choose_engine(engine, workers)
    with opened_output(run.out, resume=resume) as work:
        return run.finish(work, chosen, on_start)


def _options(named: dict[str, Any]) -> CorpusOptions:
    known = {field.name for field in fields(CorpusOptions)}
    for name in named:
        if name not in known:
            raise unknown_name("option", name, known)
    require_column_names(named.get("columns"))
    if named.get("columns") is not None:
        named["columns"] = tuple(named["columns"])
    if "max_length" not in named:
        raise InvalidOption("max_length is not given; say how many tokens a row has")
    return CorpusOptions(**named)


class _Run:
    """One call of `pack_corpus`."""

    def __init__(
        self,
        inputs: Sequence[Named],
        out: AnyPath,
        tokenizer: TokenizerLike | None,
        options: CorpusOptions,
        max_bad_records: int,
        report: Report | None,
    ) -> None:
        require_integer("max_bad_records", max_bad_records, 0)
        self.out = out
        self._named, self._options, self._tokenizer = inputs, options, tokenizer
        self._budget, self._report = max_bad_records, report
        self._commits: dict[tuple[int, int], Commit] = {}
        self._has_begun = False

    def finish(
        self, work: AnyPath, engine: Engine, on_start: Callable[[Start], None] | None
    ) -> PackResult:
        """Do what is left to do."""
        job = self._job(work)
        header = make_header(
            self._options,
            job.files,
            job.columns,
            tokenizer_fingerprint(self._tokenizer, job.tokenizer),
        )
        job = replace(job, run=checksum(header))
        if (self.out / MANIFEST).exists():
            return self._already_complete(work, header)
        job.require_possible()
        try:
            with engine.started():
                with write_errors(self.out):
                    self._begin(job, header)
                self._pack(job, engine, on_start)
        except BaseException:
            if self._has_begun:  # by now its workers are gone
                discard_empty_run(self.out)
            raise
        return self._seal(work, job, header)

    def _pack(
        self, job: PartitionJob, engine: Engine, on_start: Callable[[Start], None] | None
    ) -> None:
        self._require_budget(job)
        done = finished(self._commits.values())
        partitions = make_partitions(job.files, job.options, job.columns)
        left = [partition for partition in partitions if partition.number not in done]
        if on_start:
            size = sum(partition.size for partition in left)
            on_start(Start(num_bytes=size, partitions=len(partitions), resumed=len(done)))
        if left:
            engine.run(replace(job, committed=frozenset(self._commits)), left, self._hear)
        self._require_all(job, partitions)

    def _job(self, work: AnyPath) -> PartitionJob:
        require_apart(self._named, self.out)
        recorded = self._recorded(work)
        prepared = prepare(
            self._named, self._tokenizer, self._options, out=self.out, recorded=recorded
        )
        self._options = prepared.options
        return PartitionJob(
            out=self.out,
            work=work,
            files=prepared.files,
            options=prepared.options,
            tokenizer=prepared.tokenizer,
            columns=prepared.columns(),
            max_bad_records=self._budget,
            strategy=registered_strategy(prepared.options.strategy),
        )

    def _recorded(self, work: AnyPath) -> dict[str, Any] | None:
        """The options of the output that is continued, if there is one."""
        for file in (self.out / MANIFEST, work / RUN):
            if file.exists():
                options = read_header(file).get("options")
                return options if isinstance(options, dict) else None
        return None

    def _already_complete(self, work: AnyPath, header: dict[str, Any]) -> PackResult:
        manifest = read_manifest(self.out)
        require_same(self.out, {key: manifest.get(key) for key in header}, header)
        with write_errors(self.out):
            require_complete(self.out, manifest)
            clear_work(work)
            if self._options.index_only:
                sweep_plans(self.out, manifest)
        return self._result(manifest, was_complete=True)

    def _begin(self, job: PartitionJob, header: dict[str, Any]) -> None:
        if (job.work / RUN).exists():
            require_same(self.out, read_header(job.work / RUN), header)
            held = read_commits(job.work, self.out, job.run, len(job.files))
            self._commits = {(commit.partition, commit.piece): commit for commit in held}
        else:
            require_no_shards(self.out)
            write_json(job.work / RUN, header)
        (self.out / DATA).mkdir(exist_ok=True)
        self._has_begun = True

    def _hear(self, progress: Progress) -> None:
        if progress.commit is not None:
            key = (progress.commit.partition, progress.commit.piece)
            self._commits[key] = progress.commit
        if self._report:
            self._report(progress)

    def _require_budget(self, job: PartitionJob) -> None:
        bad = [record for commit in self._ordered() for record in commit.bad]
        if len(bad) > self._budget:
            raise too_many_bad(job.files, bad[self._budget], self._budget)

    def _require_all(self, job: PartitionJob, partitions: list[Partition]) -> None:
        self._require_budget(job)
        done = finished(self._commits.values())
        if len(done) != len(partitions):
            raise WorkerError(
                f"the engine returned with {len(done)} of {len(partitions)} partitions committed; "
                "resume, and report this"
            )

    def _ordered(self) -> list[Commit]:
        return [self._commits[key] for key in sorted(self._commits)]

    def _seal(self, work: AnyPath, job: PartitionJob, header: dict[str, Any]) -> PackResult:
        commits = self._ordered()
        with write_errors(self.out):
            self._require_still_ours(work, header)
            require_present(commits, self.out)
            bad = write_bad_records(self.out, commits, job.files)
            manifest = self._manifest(job, header, bad) | chat_template_of(job.tokenizer)
            manifest = write_manifest(self.out / MANIFEST, manifest)
            clear_work(work)
        if not manifest["rows"]:
            warnings.warn(f"{self.out} holds no row: {_why_none(manifest)}", stacklevel=4)
        return self._result(manifest)

    def _require_still_ours(self, work: AnyPath, header: dict[str, Any]) -> None:
        """In a store nothing keeps others away: raise if they began under other terms since."""
        if isinstance(work, RemotePath):
            run, whole = work / RUN, self.out / MANIFEST
            there = read_header(run if run.exists() or not whole.exists() else whole)
            require_same(self.out, {key: there.get(key) for key in header}, header)

    def _manifest(
        self, job: PartitionJob, header: dict[str, Any], bad: dict[str, object]
    ) -> dict[str, Any]:
        if not self._options.index_only:
            return make_manifest(header, self._ordered(), bad)
        empty = make_encoder(job.options, job.tokenizer, job.columns).documents()
        index = DocumentIndex.of_commits(self.out, self._ordered(), job.files, empty)
        entry = write_plan(self.out, plan_name(self._options), index, self._options)
        return make_index_manifest(header, self._ordered(), bad, index.to_dict(), entry)

    def _result(self, manifest: dict[str, Any], was_complete: bool = False) -> PackResult:
        plan = plan_name(self._options) if self._options.index_only else None
        return PackResult(path=self.out, manifest=manifest, plan=plan, was_complete=was_complete)


def _why_none(manifest: Mapping[str, Any]) -> str:
    documents = Ledger.from_dict(manifest["ledger"]).documents
    reasons = [f"{count} left out as {why}" for why, count in documents.dropped.items() if count]
    return f"of {documents.input} documents " + (", ".join(reasons) or "none has a token")
