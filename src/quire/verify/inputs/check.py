"""`verify_inputs`: find every token of the inputs in the output, or why it is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile, InvalidOption, QuireError
from quire.options import TokenizerEngine
from quire.printable import counted
from quire.progress import stage
from quire.storage import AnyPath, Named, as_path, local_copy
from quire.text import TokenizerLike
from quire.verify.inputs.answers import PAIRS
from quire.verify.inputs.documents import Columns, make_encoder, read_documents
from quire.verify.inputs.files import FILE_SHIFT, find_files, has_own_reader
from quire.verify.inputs.images import IMAGES, TYPES, is_over_budget
from quire.verify.output.check import OutputReport
from quire.verify.output.drops import ExpectedDrops, Span, dropped_by_shards
from quire.verify.output.images import COLUMNS, KINDS, read_images
from quire.verify.output.manifest import is_indexed, read_bad_records, read_manifest
from quire.verify.output.shards import counts_eos, has_bos, list_column, read_fragments

Item = TypeVar("Item")
_SHOWN_EVERY = 64
"""Documents between updates of the progress."""
_MOST_PROBLEMS = 100
_SIGNS_OF_DAMAGE = (
    AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError, re.error,
    pa.ArrowException,
)  # fmt: skip
"""What is raised if a part of the manifest or of a shard is missing, or of another type."""


def verify_inputs(
    report: OutputReport,
    inputs: Sequence[Named],
    tokenizer: TokenizerLike | None,
    *,
    tokenizer_engine: TokenizerEngine | None = None,
    image_root: Named | None = None,
) -> OutputReport:
    """The report of `verify_output`, extended by a comparison with the inputs.

    Every document must be in the output token by token. What is missing must have a reason that
    holds for the document itself, and the ledger must count it under that reason.
    ``tokenizer_engine=None`` is the reference of all engines.
    """
    try:
        manifest = read_manifest(report.path)
        report.notes += _shared_reader_notes(manifest)
        folder = None if image_root is None else Path(str(image_root))
        _Comparison(report, manifest).run(inputs, tokenizer, tokenizer_engine, folder)
    except QuireError:
        raise
    except _SIGNS_OF_DAMAGE as error:
        raise CorruptFile(
            f"{report.path} cannot be compared with its inputs: {type(error).__name__} {error}; "
            "its manifest or one of its files is damaged; run quire verify without --inputs"
        ) from error
    return report


def require_inputs(
    path: Named,
    inputs: Sequence[Named],
    tokenizer: TokenizerLike | None,
    *,
    tokenizer_engine: TokenizerEngine | None = None,
    image_root: Named | None = None,
) -> None:
    """Raise before anything is recounted if the inputs or the tokenizer cannot be compared with.

    What a damaged manifest says is left to `verify_output`.
    """
    try:
        manifest = read_manifest(as_path(path))
        find_files(manifest, inputs)
        folder = None if image_root is None else Path(str(image_root))
        make_encoder(manifest, tokenizer, tokenizer_engine, folder)
    except CorruptFile:
        return
    except _SIGNS_OF_DAMAGE as error:
        if isinstance(error, QuireError):
            raise


def _shared_reader_notes(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Which inputs are read by the code that packed them."""
    kinds = Counter(entry["kind"] for entry in manifest["inputs"])
    for kind, count in sorted(kinds.items()):
        if not has_own_reader(kind):
            yield (
                f"{counted(count, 'input')} of the format {kind} read with the packer's own "
                "reader, so its mistakes would not be found"
            )


def _counted(items: Iterator[Item], manifest: Mapping[str, Any]) -> Iterator[Item]:
    """The documents of the inputs, shown as progress."""
    total = manifest["ledger"]["documents"]["input"]
    with stage("comparing with the inputs", total, "document") as advance:
        for number, item in enumerate(items, 1):
            yield item
            if number % _SHOWN_EVERY == 0:
                advance(_SHOWN_EVERY)


class _Comparison:
    """An output and the report that its problems are added to."""

    def __init__(self, report: OutputReport, manifest: Mapping[str, Any]) -> None:
        if not manifest["options"]["keep_sources"]:
            raise InvalidOption(
                "the output does not record where its fragments come from (--no-keep-sources), so "
                "it cannot be compared with inputs; pack again and keep the sources"
            )
        self._report = report
        self._manifest = manifest
        self._num_eos = 0
        """Documents whose last token is in the output."""
        self._num_each = 1 + (manifest["options"].get("record_kind") == PAIRS)
        self._bad = {
            (record["file_number"] << FILE_SHIFT) + record["record"] * self._num_each
            for record in read_bad_records(report.path, manifest)
        }

    def run(
        self,
        inputs: Sequence[Named],
        tokenizer: TokenizerLike | None,
        engine: TokenizerEngine | None,
        image_root: Path | None,
    ) -> None:
        """Add what is wrong to the report."""
        manifest, report = self._manifest, self._report
        encoder = make_encoder(manifest, tokenizer, engine, image_root)
        stored = _StoredDocuments(report.path, manifest)
        drops = ExpectedDrops(
            manifest["options"],
            prefix=int(encoder.bos is not None),
            has_eos=encoder.eos is not None,
            eos_is_special=counts_eos(manifest["shards"][0]),
            has_rows=not is_indexed(manifest),
        )
        report.compared = 0
        files = find_files(manifest, inputs)
        for document, columns, together in _counted(
            read_documents(files, manifest, encoder), manifest
        ):
            if columns is None or document in self._bad:
                drops.add_bad_record()
                self._compare_bad(document, columns)
            else:
                self._compare(document, columns, stored.take(document), drops, together)
        if stored.has_unknown():
            self._add("the output holds documents that are not in the inputs")
        for problem in [*self._input_problems(drops), *drops.problems(dropped_by_shards(manifest))]:
            self._add(problem)
        if encoder.eos is not None:
            self._compare_eos()
        opening = manifest.get("documents", {}).get("opening")
        prefixes = stored.prefixes | ({opening} if opening is not None else set())
        if prefixes - {encoder.bos}:
            self._add(f"fragments start with {prefixes - {encoder.bos}}, but BOS is {encoder.bos}")

    def _input_problems(self, drops: ExpectedDrops) -> Iterator[str]:
        for what, given in drops.input.items():
            tallies = [shard["ledger"][what] for shard in self._manifest["shards"]]
            count = sum(tally["input"] for tally in tallies)
            if what == "tokens":  # the tokens of a bad record are unknown
                count -= sum(tally["dropped"].get("bad_record", 0) for tally in tallies)
            if count != given:
                yield f"the inputs have {counted(given, what[:-1])}, but the ledger counts {count}"

    def _compare_eos(self) -> None:
        shards = [shard for shard in self._manifest["shards"] if counts_eos(shard)]
        count = sum(
            shard["ledger"]["tokens"]["special"] - (shard["tokens"] - shard["content"])
            for shard in shards
        )
        if shards and count != self._num_eos:
            self._add(f"the output has {self._num_eos} EOS, but the ledger counts {count}")

    def _compare_bad(self, document: int, columns: Columns | None) -> None:
        if columns is not None:
            self._add(f"{self._name(document)} is listed as bad, but nothing is wrong with it")
        elif document not in self._bad:
            self._add(f"{self._name(document)} is bad, but is not listed as bad")

    def _compare(
        self,
        document: int,
        given: Columns,
        found: Sequence[_Fragment],
        drops: ExpectedDrops,
        together: Sequence[int],
    ) -> None:
        self._report.compared = (self._report.compared or 0) + bool(found)
        given = {**given, "input_ids": drops.truncated(given["input_ids"])}
        spans: list[Span] = []
        for offset, columns in found:
            stop = offset + len(columns["input_ids"])
            wrong = [n for n in columns if not _equal(given[n][offset:stop], columns[n])]
            if wrong:
                what = "tokens" if wrong[0] == "input_ids" else wrong[0]
                self._add(
                    f"{self._name(document)}: {what} {offset} to {stop} differ from the input"
                )
            spans.append((offset, stop))
        length = len(given["input_ids"])
        options = self._manifest["options"]
        oversized = IMAGES in given and is_over_budget(given, options)
        self._num_eos += any(stop == length for _, stop in spans)
        missing = drops.add_document(length, spans, given.get("labels"), together, oversized)
        if missing is not None:
            start, stop = missing
            self._add(
                f"{self._name(document)}: tokens {start} to {stop} of {length} are missing, or "
                "present although they should be dropped, which the options do not explain"
            )

    def _name(self, document: int) -> str:
        file, number = divmod(document, 1 << FILE_SHIFT)
        record, answer = divmod(number, self._num_each)
        pair = f" ({('chosen', 'rejected')[answer]})" if self._num_each > 1 else ""
        return f"record {record}{pair} of input {file}"

    def _add(self, problem: str) -> None:
        if len(self._report.problems) < _MOST_PROBLEMS:
            self._report.problems.append(problem)


class _Fragment(NamedTuple):
    """A part of a document."""

    offset: int
    """Its first token in the document."""
    columns: Columns


class _StoredDocuments:
    """The documents of an output in input order; one shard is in memory at a time."""

    def __init__(self, folder: AnyPath, manifest: Mapping[str, Any]) -> None:
        options = manifest["options"]
        has_answers = options["messages_column"] is not None or options.get("record_kind")
        rendered = ["labels"] if has_answers else []
        self._has_images = options.get("record_kind") in KINDS
        rendered += [TYPES] if self._has_images else []
        self._columns = list(dict.fromkeys(["input_ids", *manifest["columns"], *rendered]))
        self._indexed = is_indexed(manifest)
        self._prefix = int(not self._indexed and has_bos(manifest))
        self.prefixes: set[int] = set()
        """The tokens that fragments start with, if BOS was added to them."""
        self._documents = self._read_all([folder / shard["file"] for shard in manifest["shards"]])
        self._next = next(self._documents, None)
        self._num_skipped = 0

    def take(self, document: int) -> list[_Fragment]:
        """The fragments of a document; ask for documents in input order."""
        while self._next is not None and self._next[0] < document:
            self._next = next(self._documents, None)
            self._num_skipped += 1
        if self._next is None or self._next[0] != document:
            return []
        _, fragments = self._next
        self._next = next(self._documents, None)
        return fragments

    def has_unknown(self) -> bool:
        """Whether there are documents that were never asked for, when all others were."""
        return self._num_skipped > 0 or self._next is not None

    def _read_all(self, paths: Sequence[AnyPath]) -> Iterator[tuple[int, list[_Fragment]]]:
        for path in paths:
            with local_copy(path) as local:
                for document, found in groupby(self._read(local), key=itemgetter(0)):
                    yield document, [fragment for _, fragment in found]

    def _read(self, path: Path) -> Iterator[tuple[int, _Fragment]]:
        """(document, fragment) of every fragment of a shard, ordered by document."""
        table = pq.read_table(path, partitioning=None)
        columns = {name: list_column(path.name, table, name)[0] for name in self._columns}
        if self._indexed:
            documents = table["document_id"].to_numpy().astype(np.int64)
            _, sizes = list_column(path.name, table, "input_ids")
            offsets = np.zeros_like(documents)
        else:
            named: list[list[str]] = []
            if self._has_images:
                named = _images_of(path.name, table)
                table = table.drop_columns(COLUMNS)
            tokens, fragments = read_fragments(path.name, table, prefix=self._prefix)
            (documents, offsets, _), sizes = fragments.spans(), fragments.sizes
        stops = np.cumsum(sizes)
        if self._prefix:
            self.prefixes |= set(tokens[stops - sizes].tolist())
        starts, order = stops - sizes + self._prefix, np.lexsort((offsets, documents))
        for number in order.tolist():
            part = slice(int(starts[number]), int(stops[number]))
            own = {name: values[part] for name, values in columns.items()}
            if self._has_images:
                own[IMAGES] = np.array(named[number], str)
            yield int(documents[number]), _Fragment(int(offsets[number]), own)


def _images_of(name: str, table: pa.Table) -> list[list[str]]:
    """The images of every fragment of a shard, each by its SHA-256 and grid."""
    _, per_row = list_column(name, table, "num_images")
    images = read_images(name, table, per_row)
    named = [
        f"{image['sha256']} {t}x{h}x{w}"
        for image, (t, h, w) in zip(images.files, images.grids.tolist(), strict=True)
    ]
    ends = np.cumsum(images.counts).tolist()
    counts = images.counts.tolist()
    return [named[end - count : end] for count, end in zip(counts, ends, strict=True)]


def _equal(given: npt.NDArray[Any], stored: npt.NDArray[Any]) -> bool:
    return np.array_equal(given, stored, equal_nan=stored.dtype.kind == "f")
