"""Recount the rows of one shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


@dataclass(kw_only=True)
class Recount:
    """What the rows of a shard hold, and what is wrong with them."""

    rows: int
    tokens: int
    documents: int | None = None
    first_document: int | None = None
    last_document: int | None = None
    problems: list[str] = field(default_factory=list)


def recount_rows(rows: pa.Table, options: Mapping[str, Any], ledger: Mapping[str, Any]) -> Recount:
    """Boundaries, capacities and counts of one shard's rows."""
    found = Recount(rows=rows.num_rows, tokens=0)
    needed = ["input_ids", "document_starts"]
    needed += ["document_ids", "document_offsets"] * bool(options["keep_source"])
    missing = [name for name in needed if name not in rows.column_names]
    if missing:
        found.problems.append(f"has no column {', '.join(missing)}")
        return found
    lists = {name: list_column(rows[name]) for name in rows.column_names}
    if nulls := [name for name, pair in lists.items() if pair is None]:
        found.problems.append(f"has nulls, or no lists of numbers, in {', '.join(nulls)}")
        return found
    columns = {name: pair for name, pair in lists.items() if pair is not None}
    tokens, lengths = columns["input_ids"]
    found.tokens = len(tokens)
    found.problems += _row_problems(columns, int(options["max_length"]))
    if found.problems:
        return found  # what follows reads boundaries
    found.problems += _limit_problems(lengths, columns["document_starts"][1], options)
    found.problems += ledger_problems(ledger, options)
    found.problems += _count_problems(found, options, ledger)
    fragments = _fragment_lengths(columns["document_starts"], lengths)
    prefix = _prefix(fragments, ledger, found.problems)
    if prefix and len(fragments):
        opening = tokens[_places(columns["document_starts"], lengths)]
        if (opening != opening[0]).any():
            found.problems.append("has fragments that do not open with the same token (BOS)")
    if options["keep_source"]:
        ids, offsets = columns["document_ids"][0], columns["document_offsets"][0]
        recount_documents(found, ids, offsets, fragments - prefix, options, ledger)
    return found


def list_column(column: pa.ChunkedArray) -> tuple[npt.NDArray[Any], Ints] | None:
    """The values end to end and the length of each list; None if there is anything else."""
    kind = column.type
    if not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return None
    values = pc.list_flatten(column).combine_chunks()
    if column.null_count or values.null_count:
        return None
    lengths = pc.list_value_length(column).to_numpy().astype(np.int64)
    return values.to_numpy(zero_copy_only=False), lengths


def _row_problems(
    columns: Mapping[str, tuple[npt.NDArray[Any], Ints]], capacity: int
) -> Iterator[str]:
    tokens, lengths = columns["input_ids"]
    starts, counts = columns["document_starts"]
    for name, values in (("input_ids", tokens), ("document_starts", starts)):
        if len(values) and values.dtype.kind not in "iu":
            yield f"has {name} of type {values.dtype}, which are no integers"
            return
    if (lengths > capacity).any():
        row = int(np.argmax(lengths))
        yield f"row {row} has {lengths[row]} tokens, more than {capacity}"
    if (lengths < 1).any():
        yield f"row {int(np.argmin(lengths))} has no token"
    if len(tokens) and tokens.min() < 0:
        yield f"has a token id {tokens.min()}"
    yield from _start_problems(starts.astype(np.int64), counts, lengths)
    for name, (_, other) in columns.items():
        about_fragments = name in ("document_ids", "document_offsets")
        if name != "document_starts" and (other != (counts if about_fragments else lengths)).any():
            what = "document_starts" if about_fragments else "input_ids"
            yield f"has rows whose {name} are not as many as their {what}"


def _start_problems(starts: Ints, counts: Ints, lengths: Ints) -> Iterator[str]:
    if (counts < 1).any():
        yield f"row {int(np.argmin(counts))} has no document_starts"
        return
    row = np.repeat(np.arange(len(counts)), counts)
    opens = np.cumsum(counts) - counts
    if (starts[opens] != 0).any():
        yield f"row {int(np.argmax(starts[opens] != 0))}: document_starts do not begin with 0"
    falls = (np.diff(starts) <= 0) & (np.diff(row) == 0)
    if falls.any():
        yield f"row {int(row[int(np.argmax(falls))])}: document_starts do not rise"
    if (starts >= lengths[row]).any():
        yield f"row {int(row[int(np.argmax(starts >= lengths[row]))])}: a document starts behind it"


def _limit_problems(lengths: Ints, counts: Ints, options: Mapping[str, Any]) -> Iterator[str]:
    """Rows with fewer tokens, or more fragments, than the options let stand."""
    most = int(options["max_documents_per_row"] or counts.max(initial=0))
    if (lengths < int(options["min_len"])).any():
        row = int(np.argmin(lengths))
        yield f"row {row} has {lengths[row]} tokens, fewer than {options['min_len']}"
    if (counts > most).any():
        row = int(np.argmax(counts))
        yield f"row {row} has {counts[row]} fragments, more than {most}"


def ledger_problems(ledger: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """What came in is what went out or was dropped, for a reason that the options can give."""
    for what in ("documents", "tokens"):
        tally = ledger[what]
        counts = {name: count for name, count in tally.items() if name != "dropped"}
        for name, count in (counts | tally["dropped"]).items():
            if type(count) is not int or count < 0:
                yield f"its ledger counts {count!r:.40} {what} as {name}, which is no count"
                return
        accounted = tally["emitted"] + sum(tally["dropped"].values())
        if tally["pending"]:
            yield f"{tally['pending']} {what} are said to wait, but the output is finished"
        if tally["input"] != accounted:
            yield f"{tally['input']} {what} came in but {accounted} are accounted for"
        for reason in sorted(set(tally["dropped"]) - _reasons(options, what)):
            if tally["dropped"][reason]:
                yield f"{what} are counted as {reason}, which these options drop none for"


def _reasons(options: Mapping[str, Any], what: str) -> set[str]:
    """What documents, or tokens, can be dropped for."""
    given = options["pretokenized"] or options["messages_key"] is not None
    possible = {
        "empty": what == "documents",
        "bad_record": True,
        "unsupervised": given,
        "too_long": options["max_len"] is not None or options["overlong"] == "drop",
        "truncated": what == "tokens" and options["overlong"] in ("truncate", "truncate_left"),
        "row_too_short": int(options["min_len"]) > 1,
    }
    return {reason for reason, is_possible in possible.items() if is_possible}


def _count_problems(
    found: Recount, options: Mapping[str, Any], ledger: Mapping[str, Any]
) -> Iterator[str]:
    counts = ledger["tokens"]
    if (said := counts["emitted"] + counts["overlap"] + counts["special"]) != found.tokens:
        yield f"has {found.tokens} tokens but its ledger counts {said}"
    places = found.rows * int(options["max_length"])
    if counts["padding"] != places - found.tokens:
        yield f"has {places - found.tokens} empty places but its ledger counts {counts['padding']}"


def _fragment_lengths(starts: tuple[npt.NDArray[Any], Ints], lengths: Ints) -> Ints:
    values, counts = starts
    ends = np.append(values[1:], 0).astype(np.int64)
    ends[np.cumsum(counts) - 1] = lengths
    return ends - values if len(values) else np.zeros(0, dtype=np.int64)


def _places(starts: tuple[npt.NDArray[Any], Ints], lengths: Ints) -> Ints:
    values, counts = starts
    begins = np.repeat(np.cumsum(lengths) - lengths, counts)
    places: Ints = begins + values
    return places


def _prefix(fragments: Ints, ledger: Mapping[str, Any], problems: list[str]) -> int:
    """Tokens that open every fragment, from the count of those that were added."""
    special = ledger["tokens"]["special"]
    if special not in (0, len(fragments)):
        problems.append(f"has {len(fragments)} fragments but {special} added tokens")
    return int(special > 0)


def recount_documents(
    found: Recount,
    ids: Ints,
    offsets: Ints,
    lengths: Ints,
    options: Mapping[str, Any],
    ledger: Mapping[str, Any],
) -> None:
    """Which tokens of which documents stand here: none twice but for the overlap."""
    found.documents = len(np.unique(ids))
    if len(ids):
        found.first_document, found.last_document = int(ids.min()), int(ids.max())
    if (offsets < 0).any() or (lengths < 1).any():
        found.problems.append("has a fragment without content, or at a negative offset")
        return
    # Behind a fragment shorter than the stride, the next one begins where it began.
    order = np.lexsort((offsets + lengths, offsets, ids))
    ids, offsets, stops = ids[order], offsets[order], (offsets + lengths)[order]
    same = np.append(False, ids[1:] == ids[:-1]) if len(ids) else np.zeros(0, dtype=bool)
    before = np.where(same, np.append(0, stops[:-1]), 0) if len(ids) else stops
    overlap = np.where(same, np.maximum(0, before - offsets), 0)
    twice = same & ((overlap > int(options["stride"])) | (stops <= before))
    if twice.any():
        document = int(ids[int(np.argmax(twice))])
        found.problems.append(f"holds tokens of document {document} twice")
    new = int((stops - offsets - overlap).sum())
    lost = int(np.where(same, np.maximum(0, offsets - before), offsets).sum())
    tokens = ledger["tokens"]
    for name, count in (("emitted", new), ("overlap", int(overlap.sum()))):
        if tokens[name] != count:
            found.problems.append(f"has {count} tokens {name} but its ledger counts {tokens[name]}")
    if lost > sum(tokens["dropped"].values()):
        found.problems.append(f"{lost} tokens are missing between fragments and not accounted for")
    if ledger["documents"]["emitted"] != found.documents:
        found.problems.append(
            f"has {found.documents} documents but its ledger counts "
            f"{ledger['documents']['emitted']}"
        )
