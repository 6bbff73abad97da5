"""Read the inputs of a packed dataset again, and look for every token of theirs in it.

The files are read by other code than that which packed them; the tokenizer is the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from quire.documents import Tokenizer, TokenizerLike, as_tokenizer
from quire.errors import CorruptFile, InvalidOption, QuireError
from quire.storage import AnyPath, Named, local_copy
from quire.verify.input_files import paths_of
from quire.verify.input_values import values_of
from quire.verify.manifest import is_indexed, read_manifest
from quire.verify.output import OutputReport

Tokens = npt.NDArray[np.int64]
_BATCH = 256
_SHIFT = 40


def verify_inputs(
    report: OutputReport, inputs: Sequence[Named], tokenizer: TokenizerLike | None
) -> OutputReport:
    """The report with what the inputs say: every document is there token by token, or counted."""
    manifest = read_manifest(report.path)
    try:
        return _verify_inputs(report, manifest, inputs, tokenizer)
    except QuireError:
        raise
    except _SIGNS_OF_DAMAGE as error:
        raise CorruptFile(
            f"{report.path} cannot be compared with its inputs: {type(error).__name__} {error}; "
            "its manifest or a file beside it is damaged; look with quire verify alone"
        ) from error


# What a manifest or a shard leads to whose parts are missing, or of another kind.
_SIGNS_OF_DAMAGE = (
    AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError, re.error,
    pa.ArrowException,
)  # fmt: skip


def _verify_inputs(
    report: OutputReport,
    manifest: Mapping[str, Any],
    inputs: Sequence[Named],
    tokenizer: TokenizerLike | None,
) -> OutputReport:
    options = manifest["options"]
    if options["messages_key"] is not None or not options["keep_source"]:
        raise InvalidOption(
            "inputs can be compared for text and tokens, packed with the source of every "
            "fragment; conversations, or an output packed with --no-source, cannot"
        )
    encode = _encoder(options, tokenizer)
    stored = _Stored(report.path, manifest)
    left_out, lost, empty = 0, 0, 0
    report.compared = 0
    for document, tokens in _documents(paths_of(manifest, inputs), manifest, encode, report.path):
        found = stored.take(document)
        missing = len(tokens) - _compare(document, tokens, found, report.problems)
        left_out += not found
        lost += missing
        report.compared += bool(found)
        empty += not len(tokens)
    if stored.remaining():
        report.problems.append("the output holds documents that are not in the inputs")
    _require_accounted(report, manifest, left_out, lost, empty)
    if encode is not None and (wrong := stored.openings - {encode.bos}):
        report.problems.append(f"fragments open with {wrong}, but BOS is {encode.bos}")
    for column in [name for name in manifest["columns"] if name != "input_ids"]:
        _compare_column(report, manifest, inputs, column)
    return report


def _compare_column(
    report: OutputReport, manifest: Mapping[str, Any], inputs: Sequence[Named], column: str
) -> None:
    """What goes along with tokens that were given is what the inputs give, too."""
    stored = _Stored(report.path, manifest, column)
    paths = paths_of(manifest, inputs)
    for document, values in _documents(paths, manifest, None, report.path, column):
        _compare(document, values, stored.take(document), report.problems, column)


def _encoder(options: Mapping[str, Any], named: TokenizerLike | None) -> _Encoder | None:
    if options["pretokenized"]:
        return None
    if named is None:
        raise InvalidOption("to compare text with tokens, name the tokenizer that packed it")
    return _Encoder(as_tokenizer(named), options)


class _Encoder:
    def __init__(self, tokenizer: Tokenizer, options: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self.bos = tokenizer.bos_token_id if options["add_bos"] else None
        self._eos = tokenizer.eos_token_id if options["add_eos"] else None
        cut = options["truncate_at"]
        self._cut = None if cut is None else re.compile(cut)

    def __call__(self, texts: list[str]) -> Iterator[Tokens]:
        if self._cut is not None:
            texts = [self._cut.split(text, maxsplit=1)[0] for text in texts]
        encoded = self._tokenizer.encode_batch(texts)
        ends = np.cumsum(encoded.lengths)
        for length, end in zip(encoded.lengths.tolist(), ends.tolist(), strict=True):
            tokens = encoded.tokens[end - length : end].astype(np.int64)
            if self.bos is not None and length and tokens[0] == self.bos:
                tokens = tokens[1:]
            if self._eos is not None and len(tokens):
                tokens = np.append(tokens, self._eos)
            yield tokens


def _documents(
    paths: Sequence[AnyPath],
    manifest: Mapping[str, Any],
    encode: _Encoder | None,
    out: AnyPath,
    column: str = "input_ids",
) -> Iterator[tuple[int, Tokens]]:
    bad = _bad_records(manifest, out)
    tokens_key = manifest["options"].get("tokens_key", "input_ids")
    given = tokens_key if column == "input_ids" else column
    key = given if encode is None else manifest["options"]["text_key"]
    kind: Any = list if encode is None else str
    for number, path in enumerate(paths):
        values = (
            (record, value)
            for record, value in _values(path, manifest["inputs"][number]["kind"], key)
            if (number, record) not in bad
        )
        while batch := list(islice(values, _BATCH)):
            # What is no value of its kind, and is not listed as bad, will be missed as a document.
            contents = [value if isinstance(value, kind) else kind() for _, value in batch]
            encoded = map(_as_tokens, contents) if encode is None else encode(contents)
            for (record, _), tokens in zip(batch, encoded, strict=True):
                yield (number << _SHIFT) + record, tokens


def _values(path: AnyPath, kind: str, key: str) -> Iterator[tuple[int, Any]]:
    with local_copy(path) as local:
        yield from values_of(local, kind, key)


def _as_tokens(given: list[int]) -> Tokens:
    return np.array(given, dtype=None if given else np.int64)


def _bad_records(manifest: Mapping[str, Any], out: AnyPath) -> set[tuple[int, int]]:
    if not manifest["bad_records"]["count"]:
        return set()
    lines = (out / "bad_records.jsonl").read_text(encoding="utf-8").splitlines()
    listed = map(json.loads, lines)
    return {(record["file_number"], record["record"]) for record in listed}


class _Stored:
    """The fragments of the output by document, one shard in memory at a time."""

    def __init__(
        self, out: AnyPath, manifest: Mapping[str, Any], column: str = "input_ids"
    ) -> None:
        self._column = column
        self._shards = iter([out / shard["file"] for shard in manifest["shards"]])
        self._with_bos = manifest["ledger"]["tokens"]["special"] > 0
        self._whole = is_indexed(manifest)
        self._held: dict[int, list[tuple[int, Tokens]]] = {}
        self.openings: set[int | None] = set()
        if self._whole and manifest["documents"]["opening"] is not None:
            self.openings.add(manifest["documents"]["opening"])

    def take(self, document: int) -> list[tuple[int, Tokens]]:
        """The fragments of a document; documents are asked for in input order."""
        while not self._held and (path := next(self._shards, None)) is not None:
            self._load(path)
        return self._held.pop(document, [])

    def remaining(self) -> int:
        """Documents that nobody asked for."""
        left = len(self._held)
        for path in self._shards:
            self._load(path)
            left += len(self._held)
        return left

    def _load(self, path: AnyPath) -> None:
        with local_copy(path) as local:
            self._read(local)

    def _read(self, path: Path) -> None:
        self._held = {}
        if self._whole:
            table = pq.read_table(path, columns=["document_id", self._column])
            for document, tokens in zip(*(column.to_pylist() for column in table), strict=True):
                self._held[document] = [(0, np.array(tokens))]
            return
        for row in pq.read_table(path).to_pylist():
            tokens = np.array(row[self._column])
            starts = row["document_starts"]
            self.openings |= set(tokens[starts].tolist() if self._with_bos else ())
            edges = zip(starts, [*starts[1:], len(tokens)], strict=True)
            sources = zip(row["document_ids"], row["document_offsets"], strict=True)
            for (start, stop), (document, offset) in zip(edges, sources, strict=True):
                piece = (offset, tokens[start + self._with_bos : stop])
                self._held.setdefault(document, []).append(piece)


def _compare(
    document: int,
    tokens: Tokens,
    found: list[tuple[int, Tokens]],
    problems: list[str],
    column: str = "tokens",
) -> int:
    """How many of a document's tokens are there."""
    there = np.zeros(len(tokens), dtype=bool)
    for offset, piece in found:
        stop = offset + len(piece)
        nan = piece.dtype.kind == "f"
        if stop > len(tokens) or not np.array_equal(tokens[offset:stop], piece, equal_nan=nan):
            file, record = document >> _SHIFT, document & ((1 << _SHIFT) - 1)
            if len(problems) < 100:
                problems.append(
                    f"record {record} of input {file}: {column} {offset} to {stop} are not what "
                    "the input gives"
                )
        else:
            there[offset:stop] = True
    return int(there.sum())


def _require_accounted(
    report: OutputReport, manifest: Mapping[str, Any], left_out: int, lost: int, empty: int
) -> None:
    said = sum(s["ledger"]["documents"]["dropped"].get("empty", 0) for s in manifest["shards"])
    if empty != said:
        report.problems.append(
            f"{empty} documents of the inputs are empty, but {said} are counted as that"
        )
    for what, missing in (("documents", left_out), ("tokens", lost)):
        # What a plan leaves out still stands in the shards, so their own ledgers are asked.
        counted = sum(
            count
            for shard in manifest["shards"]
            for reason, count in shard["ledger"][what]["dropped"].items()
            if reason != "bad_record"
        )
        if missing != counted:
            report.problems.append(
                f"{missing} {what} of the inputs are not there, but {counted} are counted as "
                "dropped"
            )
