"""Read the inputs of a packed dataset again, and account for every token of theirs.

A document must be in the output token by token; what is missing must have a reason that holds for
the document itself, and the ledger must count it so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from quire.errors import CorruptFile, InvalidOption, QuireError
from quire.storage import AnyPath, Named
from quire.text import TokenizerLike
from quire.verify.drops import Drops, shard_drops
from quire.verify.input_documents import FILE_SHIFT, Columns, documents_of, make_encoder
from quire.verify.input_files import paths_of
from quire.verify.manifest import is_indexed, read_manifest
from quire.verify.output import OutputReport
from quire.verify.stored import Fragment, StoredDocuments

_MOST_PROBLEMS = 100


def verify_inputs(
    report: OutputReport, inputs: Sequence[Named], tokenizer: TokenizerLike | None
) -> OutputReport:
    """The report with what the inputs say: every document is there token by token, or counted."""
    manifest = read_manifest(report.path)
    try:
        _Comparison(report, manifest).run(inputs, tokenizer)
    except QuireError:
        raise
    except _SIGNS_OF_DAMAGE as error:
        raise CorruptFile(
            f"{report.path} cannot be compared with its inputs: {type(error).__name__} {error}; "
            "its manifest or a file beside it is damaged; look with quire verify alone"
        ) from error
    return report


# What a manifest or a shard leads to whose parts are missing, or of another kind.
_SIGNS_OF_DAMAGE = (
    AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError, re.error,
    pa.ArrowException,
)  # fmt: skip


class _Comparison:
    """An output beside its inputs."""

    def __init__(self, report: OutputReport, manifest: Mapping[str, Any]) -> None:
        if not manifest["options"]["keep_source"]:
            raise InvalidOption(
                "an output that was packed with --no-source does not say where its fragments come "
                "from, so it cannot be compared with inputs; pack it with the source"
            )
        self._report = report
        self._manifest = manifest
        self._bad = _bad_records(manifest, report.path)

    def run(self, inputs: Sequence[Named], tokenizer: TokenizerLike | None) -> None:
        """Add what is wrong to the report."""
        manifest, report = self._manifest, self._report
        encoder = make_encoder(manifest, tokenizer)
        stored = StoredDocuments(report.path, manifest, self._columns())
        drops = Drops(
            manifest["options"],
            prefix=int(encoder.bos is not None),
            has_eos=encoder.eos is not None,
            rows=not is_indexed(manifest),
        )
        report.compared = 0
        for document, columns in documents_of(paths_of(manifest, inputs), manifest, encoder):
            if columns is None or document in self._bad:
                drops.bad()
                self._compare_bad(document, columns)
            else:
                self._compare(document, columns, stored.take(document), drops)
        if stored.finish():
            self._add("the output holds documents that are not in the inputs")
        for problem in [*self._input_problems(drops), *drops.problems(shard_drops(manifest))]:
            self._add(problem)
        opening = manifest.get("documents", {}).get("opening")
        openings = stored.openings | ({opening} if opening is not None else set())
        if openings - {encoder.bos}:
            self._add(f"fragments open with {openings - {encoder.bos}}, but BOS is {encoder.bos}")

    def _columns(self) -> list[str]:
        """``input_ids``, and the columns beside it."""
        rendered = ("labels",) if self._manifest["options"]["messages_key"] is not None else ()
        return list(dict.fromkeys(("input_ids", *self._manifest["columns"], *rendered)))

    def _input_problems(self, drops: Drops) -> Iterator[str]:
        for what, given in drops.input.items():
            tallies = [shard["ledger"][what] for shard in self._manifest["shards"]]
            counted = sum(tally["input"] for tally in tallies)
            if what == "tokens":  # nobody knows how many tokens a bad record has
                counted -= sum(tally["dropped"].get("bad_record", 0) for tally in tallies)
            if counted != given:
                yield f"the inputs give {given} {what}, but {counted} are counted as input"

    def _compare_bad(self, document: int, columns: Columns | None) -> None:
        if columns is not None:
            self._add(f"{_name(document)} is listed as bad, but nothing is wrong with it")
        elif document not in self._bad:
            self._add(f"{_name(document)} is bad, but not listed as that")

    def _compare(self, document: int, given: Columns, found: list[Fragment], drops: Drops) -> None:
        tokens = given["input_ids"]
        self._report.compared = (self._report.compared or 0) + bool(found)
        there = []
        for offset, columns in found:
            stop = offset + len(columns["input_ids"])
            wrong = [n for n in columns if not _same(given[n][offset:stop], columns[n])]
            if wrong:
                what = "tokens" if wrong[0] == "input_ids" else wrong[0]
                where = f"{_name(document)}: {what} {offset} to {stop}"
                self._add(f"{where} are not what the input gives")
            there.append((offset, stop))
        labels = given.get("labels")
        missing = drops.judge(len(tokens), there, labels)
        if missing is not None:
            start, stop = missing
            self._add(
                f"{_name(document)}: tokens {start} to {stop} of {len(tokens)} are missing, or "
                "there although they should be dropped, for no reason that the options give"
            )

    def _add(self, problem: str) -> None:
        if len(self._report.problems) < _MOST_PROBLEMS:
            self._report.problems.append(problem)


def _same(given: Any, stored: Any) -> bool:  # noqa: ANN401 - arrays of any numbers
    return np.array_equal(given, stored, equal_nan=stored.dtype.kind == "f")


def _name(document: int) -> str:
    file, record = document >> FILE_SHIFT, document & ((1 << FILE_SHIFT) - 1)
    return f"record {record} of input {file}"


def _bad_records(manifest: Mapping[str, Any], out: AnyPath) -> set[int]:
    if not manifest["bad_records"]["count"]:
        return set()
    lines = (out / "bad_records.jsonl").read_text(encoding="utf-8").splitlines()
    listed = map(json.loads, lines)
    return {(record["file_number"] << FILE_SHIFT) + record["record"] for record in listed}
