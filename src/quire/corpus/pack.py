"""`pack_corpus`: packs inputs into a dataset on disk, and can be resumed after any interruption."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quire.corpus.commits import Commit, finished, read_commits, require_present
from quire.corpus.corpus import Corpus, chat_template_of
from quire.corpus.engines import Engine, choose_engine
from quire.corpus.in_place import pack_in_place, reads_in_place
from quire.corpus.index import DocumentIndex, plan_name, write_plan
from quire.corpus.job import PartitionJob, Progress, Report, require_budget
from quire.corpus.manifest import (
    PackResult,
    make_header,
    make_index_manifest,
    make_manifest,
    require_same,
    with_first_plan,
    write_bad_records,
    write_json,
    write_manifest,
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
from quire.corpus.partitions import make_partitions
from quire.errors import InvalidDocument, InvalidOption, WorkerError
from quire.formats.files import as_list
from quire.ledger import Ledger
from quire.options import known_options, require_flag, require_integer
from quire.options.names import option
from quire.packed.manifest import MANIFEST, read_header, read_manifest
from quire.plan.strategies import registered_strategy
from quire.seals import checksum
from quire.storage import AnyPath, Named, RemotePath, as_path
from quire.text import TokenizerLike
from quire.text.engine import engine_record
from quire.text.fingerprint import tokenizer_fingerprint

_EARLIER_DEFAULT = "best_fit"
"""The default strategy up to 0.1."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What is known when the work begins, for progress displays."""

    num_bytes: int
    """Text to be read, as far as it is known."""
    partitions: int
    resumed: int
    """Partitions that are complete already."""


def pack_corpus(
    inputs: Iterable[Named],
    out: Named,
    tokenizer: TokenizerLike | None = None,
    *,
    workers: int | None = None,
    engine: Engine | str | None = None,
    resume: bool = False,
    format: str | None = None,  # noqa: A002
    max_bad_records: int = 0,
    image_root: Named | None = None,
    on_start: Callable[[Start], None] | None = None,
    on_progress: Report | None = None,
    **options: Any,  # noqa: ANN401 - declared once, at CorpusOptions
) -> PackResult:
    """Pack a corpus into Parquet shards with a manifest; options are those of `CorpusOptions`.

    ``inputs`` are files, globs, folders and saved datasets; they and ``out`` may be local paths or
    URIs (s3://, gs://, hf://, or any scheme of fsspec). With ``resume``, an unfinished output is
    continued, and a finished one is left as it is. With ``index_only``, documents and a plan of
    their rows are written instead of rows, and `replan` makes other rows from them. A tokenized
    corpus of another system (see `quire.formats.open_corpus`, and ``format``) is then read in
    place: only a plan is written. Samples with images (see the guide to vision-language models)
    are packed with references to their files, whose relative paths start at ``image_root``, or at
    the folder of the input that names them. The bytes
    depend only on the inputs, the tokenizer and the options, not on workers, engine or
    interruptions. Memory: a few times ``partition_size`` per worker.

    Several workers are new processes, so a script needs ``if __name__ == "__main__"``. With
    ``engine="ray"`` (or a `RayEngine`) partitions are tasks of a Ray cluster, and ``workers`` is
    the number of concurrent tasks.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.jsonl").write_text('{"text": "abc"}\\n{"text": "de"}\\n')
    >>> result = pack_corpus([folder / "a.jsonl"], folder / "packed", "byte", max_length=10)
    >>> result.num_rows, result.ledger.documents.emitted
    (1, 2)
    """
    require_flag("resume", resume)
    given = CorpusOptions(**known_options(CorpusOptions, options))
    named, out = as_list(inputs), as_path(out)
    require_integer("max_bad_records", max_bad_records, 0)
    if reads_in_place(named, given, format):
        if tokenizer is not None:
            raise InvalidOption(
                f"{named[0]} holds tokens, so no tokenizer is needed; leave tokenizer out"
            )
        require_apart(named, out)
        return pack_in_place(named, out, given, format, resume=resume)
    chosen = choose_engine(engine, workers)
    with opened_output(out, resume=resume) as work:
        require_apart(named, out)
        recorded = _recorded_header(out, work)
        if "strategy" not in options:
            given = _with_strategy_of(recorded, given)
        corpus = Corpus.open(
            named,
            tokenizer,
            given,
            out=out,
            recorded=recorded.get("options"),
            image_root=None if image_root is None else Path(str(image_root)),
            format=format,
        )
        header = make_header(corpus, tokenizer_fingerprint(tokenizer, corpus.tokenizer))
        if recorded:  # continue under this header: commits and the manifest refer to it
            header = require_same(out, recorded, header, type(given))
        if (out / MANIFEST).exists():
            return _finished(out, work, corpus.options, recorded)
        job = PartitionJob(
            corpus=corpus,
            out=out,
            work=work,
            plan_options=corpus.plan_options(),
            run=checksum(header),
            max_bad_records=max_bad_records,
            strategy=registered_strategy(corpus.options.strategy),
        )
        return _Run(job, header, on_progress).finish(chosen, on_start)


def _with_strategy_of(recorded: dict[str, Any], given: CorpusOptions) -> CorpusOptions:
    """The options, with best_fit for an output that was begun when that was the default."""
    began_with = recorded.get("options")
    if isinstance(began_with, dict) and began_with.get("strategy") == _EARLIER_DEFAULT:
        return replace(given, strategy=_EARLIER_DEFAULT)
    return given


def _recorded_header(out: AnyPath, work: AnyPath) -> dict[str, Any]:
    """The manifest or the header of the output that is being resumed; empty if there is none."""
    if (out / MANIFEST).exists():
        return read_manifest(out)
    return read_header(work / RUN) if (work / RUN).exists() else {}


def _finished(
    out: AnyPath, work: AnyPath, options: CorpusOptions, manifest: dict[str, Any]
) -> PackResult:
    """The result of an output that was complete before."""
    with write_errors(out):
        require_complete(out, manifest)
        clear_work(work)
        if options.index_only:
            sweep_plans(out, manifest)
    return _result(out, manifest, options, was_complete=True)


def _result(
    out: AnyPath, manifest: dict[str, Any], options: CorpusOptions, *, was_complete: bool = False
) -> PackResult:
    plan = plan_name(options) if options.index_only else None
    return PackResult(path=out, manifest=manifest, plan=plan, was_complete=was_complete)


class _Run:
    """One call of `pack_corpus` that has work to do."""

    def __init__(self, job: PartitionJob, header: dict[str, Any], report: Report | None) -> None:
        self._job, self._header, self._report = job, header, report
        self._commits: dict[tuple[int, int], Commit] = {}
        self._has_begun = False

    def finish(self, engine: Engine, on_start: Callable[[Start], None] | None) -> PackResult:
        """Pack the partitions that are not committed yet, then write the manifest."""
        try:
            with engine.started():
                with write_errors(self._job.out):
                    self._begin()
                self._pack(engine, on_start)
        except BaseException as error:
            if self._has_begun:  # by now its workers have ended
                discard_empty_run(self._job.out)
                self._offer_resume(error)
            raise
        return self._complete()

    def _offer_resume(self, error: BaseException) -> None:
        """Say that a run with another limit continues what is there, if the error is about it."""
        words = (f"raise {name}" for name in ("max_bad_records", option("max_bad_records")))
        is_about_limit = any(text in str(error) for text in words)
        if isinstance(error, InvalidDocument) and is_about_limit and self._is_there():
            raise InvalidDocument(
                f"{error}; what is committed stays in {self._job.out}: with a higher limit, "
                f"continue with {option('resume')}"
            ) from error.__cause__

    def _is_there(self) -> bool:
        return (self._job.work / RUN).exists()

    def _begin(self) -> None:
        job = self._job
        if self._is_there():
            require_same(job.out, read_header(job.work / RUN), self._header)
            found = read_commits(job.work, job.out, job.run, len(job.corpus.files))
            self._commits = {(commit.partition, commit.piece): commit for commit in found}
        else:
            require_no_shards(job.out)
            write_json(job.work / RUN, self._header)
        (job.out / DATA).mkdir(exist_ok=True)
        self._has_begun = True

    def _pack(self, engine: Engine, on_start: Callable[[Start], None] | None) -> None:
        self._require_budget()
        done = finished(self._commits.values())
        partitions = make_partitions(self._job.corpus)
        left = [partition for partition in partitions if partition.number not in done]
        if on_start:
            size = sum(partition.size for partition in left)
            on_start(Start(num_bytes=size, partitions=len(partitions), resumed=len(done)))
        if left:
            self._job.corpus.try_engine(left[0].spans)
            job = replace(self._job, committed=frozenset(self._commits))
            engine.run(job, left, self._record)
        self._require_budget()
        done = finished(self._commits.values())
        if len(done) != len(partitions):
            raise WorkerError(
                f"the engine returned with {len(done)} of {len(partitions)} partitions committed; "
                "resume, and report this"
            )

    def _record(self, progress: Progress) -> None:
        if progress.commit is not None:
            key = (progress.commit.partition, progress.commit.piece)
            self._commits[key] = progress.commit
        if self._report:
            self._report(progress)

    def _require_budget(self) -> None:
        bad = [record for commit in self._ordered() for record in commit.bad]
        require_budget(self._job.corpus.files, bad, self._job.max_bad_records)

    def _ordered(self) -> list[Commit]:
        return [self._commits[key] for key in sorted(self._commits)]

    def _complete(self) -> PackResult:
        job, commits = self._job, self._ordered()
        with write_errors(job.out):
            self._require_same_run()
            require_present(commits, job.out)
            bad = write_bad_records(job.out, commits, job.corpus.files)
            manifest = self._manifest(commits, bad) | chat_template_of(job.corpus.tokenizer)
            if (engine := engine_record(job.corpus.engine or job.corpus.tokenizer)) is not None:
                manifest["tokenizer_engine"] = engine
            manifest = write_manifest(job.out / MANIFEST, manifest)
            clear_work(job.work)
        if not manifest["rows"]:
            warnings.warn(f"{job.out} has no rows; {_why_none(manifest)}", stacklevel=4)
        return _result(job.out, manifest, job.corpus.options)

    def _require_same_run(self) -> None:
        """Raise if another run began meanwhile: a store has no lock that prevents it."""
        out, work = self._job.out, self._job.work
        if isinstance(work, RemotePath):
            run, whole = work / RUN, out / MANIFEST
            there = read_header(run if run.exists() or not whole.exists() else whole)
            require_same(out, there, self._header)

    def _manifest(self, commits: list[Commit], bad: dict[str, object]) -> dict[str, Any]:
        out, corpus = self._job.out, self._job.corpus
        if not corpus.options.index_only:
            return make_manifest(self._header, commits, bad)
        empty = corpus.encoder().documents()
        manifest = make_index_manifest(self._header, commits, bad, empty)
        index = DocumentIndex.of_manifest(out, manifest)
        plan = write_plan(out, plan_name(corpus.options), index, corpus.options)
        return with_first_plan(manifest, plan)


def _why_none(manifest: Mapping[str, Any]) -> str:
    documents = Ledger.from_dict(manifest["ledger"]).documents
    reasons = [f"{count} dropped as {why}" for why, count in documents.dropped.items() if count]
    return f"documents: {', '.join([f'{documents.input} read', *reasons])}"
