"""Recount the rows of one shard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import CorruptFile
from quire.printable import counted
from quire.storage import AnyPath, RemotePath

Ints: TypeAlias = npt.NDArray[np.int64]
Lists: TypeAlias = tuple[npt.NDArray[Any], Ints]
"""A column of lists: all values end to end, and the length of each list."""
_MAPPED = ".mapped"
TARGETS = {"labels": -100, "loss_mask": 0, "assistant_masks": 0, "completion_mask": 0}
"""Columns that say what is trained, and their value at tokens that are not."""
_INTEGERS = ("input_ids", "document_starts", "document_ids", "document_offsets")


@dataclass(kw_only=True)
class Recount:
    """What a shard or a plan holds, and what is wrong with it."""

    rows: int
    tokens: int
    content: int = 0
    """Tokens without BOS."""
    documents: int = 0
    first_document: int | None = None
    last_document: int | None = None
    problems: list[str] = field(default_factory=list)

    def compare(self, counts: Mapping[str, int], recorded: Mapping[str, Any]) -> None:
        """Add a problem for every count that differs from the manifest's."""
        if "content" in recorded:  # 0.1.0 did not record it
            counts = {**counts, "content": self.content}
        for name, count in counts.items():
            if recorded.get(name) != count:
                unit = "content token" if name == "content" else name.removesuffix("s")
                found = counted(count, unit)
                self.problems.append(f"has {found} but the manifest says {recorded.get(name)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fragments:
    """The fragments of some rows, row after row."""

    per_row: Ints
    sizes: Ints
    """Tokens that each takes up in its row, the prefix included."""
    prefix: int
    """Special tokens at the start of each."""
    documents: Ints | None = None
    offsets: Ints | None = None
    """The first token of each within its document."""
    trained: Ints | None = None
    """Trained tokens of each, if labels or loss masks say which are."""

    def row_lengths(self) -> Ints:
        """Tokens in each row."""
        ends = np.append(0, np.cumsum(self.sizes))
        lengths: Ints = np.diff(ends[np.append(0, np.cumsum(self.per_row))])
        return lengths

    def spans(self) -> tuple[Ints, Ints, Ints]:
        """The document of each, its first token there, and the token after its last."""
        if self.documents is None or self.offsets is None:
            raise CorruptFile("the fragments do not record their documents")
        return self.documents, self.offsets, self.offsets + self.sizes - self.prefix


def list_column(name: str, table: pa.Table, column: str) -> Lists:
    """The values of a column of lists; CorruptFile, with the file's name, if it has others."""
    if column not in table.column_names:
        raise CorruptFile(f"{name} has no column {column}")
    lists = table[column]
    is_list = pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)
    values = pc.list_flatten(lists).combine_chunks() if is_list else lists
    if not is_list or lists.null_count or values.null_count:
        raise CorruptFile(f"{name} has nulls, or values that are not lists of numbers, in {column}")
    lengths = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return values.to_numpy(zero_copy_only=False), lengths


def read_fragments(
    name: str, table: pa.Table, *, prefix: int = 0, has_sources: bool = True
) -> tuple[npt.NDArray[Any], Fragments]:
    """The tokens of a table of rows, end to end, and its fragments.

    Raises CorruptFile, with the file's name, if its columns cannot be those of rows.
    """
    sources = ("document_ids", "document_offsets") if has_sources else ()
    names = dict.fromkeys(["input_ids", "document_starts", *sources, *table.column_names])
    columns = {column: list_column(name, table, column) for column in names}
    if problems := list(_column_problems(columns)):
        raise CorruptFile(f"{name}: {'; '.join(problems)}")
    tokens, lengths = columns["input_ids"]
    starts, per_row = columns["document_starts"]
    ends = np.append(starts[1:], 0).astype(np.int64)[: len(starts)]
    ends[np.cumsum(per_row) - 1] = lengths
    fragments = Fragments(
        per_row=per_row,
        sizes=ends - starts,
        prefix=prefix,
        documents=columns["document_ids"][0] if has_sources else None,
        offsets=columns["document_offsets"][0] if has_sources else None,
    )
    return tokens, fragments


def counts_eos(entry: Mapping[str, Any]) -> bool:
    """Whether the ledger of a shard, a plan or a manifest counts an added EOS as special.

    Those of 0.1.0, which do not record their content, count it like any other token.
    """
    return "content" in entry


def has_bos(entry: Mapping[str, Any]) -> bool:
    """Whether the fragments of a shard or a manifest of rows start with BOS."""
    if counts_eos(entry):
        return bool(entry["content"] < entry["tokens"])
    return bool(entry["ledger"]["tokens"]["special"] > 0)


def recount_rows(table: pa.Table, options: Mapping[str, Any], shard: Mapping[str, Any]) -> Recount:
    """What the rows of one shard hold: boundaries, limits, and every count of the ledger."""
    name, ledger = shard["file"], shard["ledger"]
    prefix, has_sources = int(has_bos(shard)), bool(options["keep_sources"])
    tokens, fragments = read_fragments(name, table, prefix=prefix, has_sources=has_sources)
    found = Recount(rows=table.num_rows, tokens=len(tokens))
    found.problems += ledger_problems(ledger, options)
    found.problems += trained_problems(ledger, _recount_trained(name, table, fragments))
    num_eos = _count_eos(tokens, fragments, options, ledger) if counts_eos(shard) else 0
    recount_fragments(found, fragments, options, ledger, num_eos)
    first = tokens[np.cumsum(fragments.sizes) - fragments.sizes]
    if prefix and (first != first[:1]).any():
        found.problems.append("has fragments that do not start with the same token (BOS)")
    return found


def _recount_trained(name: str, table: pa.Table, fragments: Fragments) -> int | None:
    """Tokens of rows that are trained; None if no column says which are."""
    flags = target_flags(name, table)
    if flags is None:
        return None
    opening = np.cumsum(fragments.sizes) - fragments.sizes
    return int(flags.sum()) - int(flags[opening].sum())


def target_flags(name: str, table: pa.Table) -> npt.NDArray[np.bool_] | None:
    """Whether each token is trained, by the labels and loss masks of a table; None without any."""
    flags: npt.NDArray[np.bool_] | None = None
    for column, untrained in TARGETS.items():
        if column in table.column_names:
            own = list_column(name, table, column)[0] != untrained
            flags = own if flags is None else flags & own
    return flags


def trained_problems(ledger: Mapping[str, Any], count: int | None) -> Iterator[str]:
    """A problem if the ledger counts other trained tokens; earlier versions did not count any."""
    said = ledger["tokens"].get("trained")
    if said is not None and said != count:
        yield (f"has {counted(count or 0, 'trained token')} but its ledger counts {said}")


def _count_eos(
    tokens: npt.NDArray[Any],
    fragments: Fragments,
    options: Mapping[str, Any],
    ledger: Mapping[str, Any],
) -> int:
    """The number of added EOS: what the ledger counts, as far as the rows allow it.

    Rows do not show which documents lost their end. If none did, all end with EOS, or none.
    """
    claimed = int(ledger["tokens"]["special"]) - fragments.prefix * len(fragments.sizes)
    if not options["add_eos"] or options["pretokenized"] or options["messages_column"] is not None:
        return 0
    if fragments.documents is None:
        return min(max(claimed, 0), int(ledger["documents"]["emitted"]))
    documents, _, stops = fragments.spans()
    order = np.lexsort((stops, documents))
    last = order[np.append(documents[order][1:] != documents[order][:-1], True)[: len(order)]]
    final = tokens[np.cumsum(fragments.sizes)[last] - 1]
    most = int(np.unique(final, return_counts=True)[1].max(initial=0))
    if options["overlong"] == "truncate" or int(options["min_length"]) > 1:
        return min(max(claimed, 0), most)
    return len(final) if claimed and most == len(final) else 0


def recount_fragments(
    found: Recount,
    fragments: Fragments,
    options: Mapping[str, Any],
    ledger: Mapping[str, Any],
    num_eos: int,
) -> None:
    """Add a problem for every limit that rows exceed, and every count their ledger has wrong."""
    lengths = fragments.row_lengths()
    found.problems += _limit_problems(lengths, fragments.per_row, options)
    num_fragments, num_places = len(fragments.sizes), found.rows * int(options["max_length"])
    special = fragments.prefix * num_fragments + num_eos
    found.content = found.tokens - fragments.prefix * num_fragments
    counts = {"special": special, "padding": num_places - found.tokens}
    tokens = ledger["tokens"]
    if fragments.documents is not None and fragments.offsets is not None:
        sizes = fragments.sizes - fragments.prefix
        counts |= _recount_documents(
            found, fragments.documents, fragments.offsets, sizes, options, ledger, num_eos
        )
    elif (said := tokens["emitted"] + tokens["overlap"] + special) != found.tokens:
        message = f"has {counted(found.tokens, 'token')} but its ledger counts {said}"
        found.problems.append(message)
    for kind, count in counts.items():
        if tokens[kind] != count:
            told = counted(count, f"{kind} token")
            message = f"has {told} but its ledger counts {tokens[kind]}"
            found.problems.append(message)


def ledger_problems(ledger: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[str]:
    """Whether input equals emitted plus dropped, for reasons that the options allow."""
    for what in ("documents", "tokens"):
        tally = ledger[what]
        counts = {name: count for name, count in tally.items() if name != "dropped"}
        for name, count in (counts | tally["dropped"]).items():
            if type(count) is not int or count < 0:
                yield f"its ledger counts {count!r:.40} {what} as {name}, which is not a count"
                return
        accounted = tally["emitted"] + sum(tally["dropped"].values())
        if tally["pending"]:
            pending = counted(tally["pending"], f"pending {what[:-1]}")
            yield f"its ledger counts {pending}, but the output is finished"
        if tally["input"] != accounted:
            given = counted(tally["input"], f"input {what[:-1]}")
            yield f"its ledger counts {given} but accounts for {accounted}"
        for reason in sorted(set(tally["dropped"]) - _possible_reasons(options, what)):
            if tally["dropped"][reason]:
                yield f"{what} are counted as {reason}, which these options never drop"


def mapped_problems(
    folder: AnyPath, manifest: Mapping[str, Any], shard: Mapping[str, Any], table: pa.Table
) -> Iterator[str]:
    """A problem if the memory-mapped copy, which readers use instead of the shard, differs.

    Readers keep the copies of remote datasets elsewhere, under the SHA-256 of what they fetched.
    """
    if isinstance(folder, RemotePath):
        return
    path = folder / _MAPPED / f"{Path(shard['file']).stem}.arrow"
    if not _is_trusted(path, manifest):
        return  # readers make it again
    try:
        with pa.memory_map(str(path)) as source:
            mapped = pa.ipc.open_file(source).read_all()
            mapped.validate(full=True)
            same = mapped.schema.equals(table.schema) and all(
                _same_lists(mapped, table, column) for column in table.column_names
            )
    except (pa.ArrowException, OSError, ValueError):
        same = False
    if not same:
        where = path.relative_to(folder)
        yield f"its memory-mapped copy {where} holds something else; remove {_MAPPED}"


def integer_problems(columns: Mapping[str, Lists]) -> Iterator[str]:
    """Columns of token ids or boundaries with values that are not natural numbers."""
    for name, (values, _) in columns.items():
        if name in _INTEGERS and len(values):
            if values.dtype.kind not in "iu":
                yield f"has {name} of type {values.dtype}, which are not integers"
            elif values.min() < 0:
                yield f"has a negative value in {name}: {values.min()}"


def _column_problems(columns: Mapping[str, Lists]) -> Iterator[str]:
    if problems := list(integer_problems(columns)):
        yield from problems
        return
    (_, lengths), (starts, counts) = columns["input_ids"], columns["document_starts"]
    if (lengths < 1).any():
        yield f"row {int(np.argmin(lengths))} has no token"
    yield from _start_problems(starts.astype(np.int64), counts, lengths)
    for name, (_, other) in columns.items():
        like = "document_starts" if name.startswith("document_") else "input_ids"
        if (other != columns[like][1]).any():
            yield f"has rows with a different number of {name} than of {like}"


def _start_problems(starts: Ints, counts: Ints, lengths: Ints) -> Iterator[str]:
    if (counts < 1).any():
        yield f"row {int(np.argmin(counts))} has no document_starts"
        return
    row = np.repeat(np.arange(len(counts)), counts)
    first = starts[np.cumsum(counts) - counts]
    falls = (np.diff(starts) <= 0) & (np.diff(row) == 0)
    outside = starts >= lengths[row]
    for wrong, where, problem in (
        (first != 0, np.arange(len(counts)), "document_starts do not begin with 0"),
        (falls, row, "document_starts do not increase"),
        (outside, row, "a document starts after the end of the row"),
    ):
        if wrong.any():
            yield f"row {int(where[int(np.argmax(wrong))])}: {problem}"


def _limit_problems(
    lengths: Ints, fragments_per_row: Ints, options: Mapping[str, Any]
) -> Iterator[str]:
    most = options["max_documents_per_row"] or int(fragments_per_row.max(initial=0))
    for values, limit, unit, is_most in (
        (lengths, options["max_length"], "token", True),
        (lengths, options["min_length"], "token", False),
        (fragments_per_row, most, "fragment", True),
    ):
        wrong = values > int(limit) if is_most else values < int(limit)
        if wrong.any():
            row = int(np.argmax(wrong))
            compared = "more" if is_most else "fewer"
            yield f"row {row} has {counted(int(values[row]), unit)}, {compared} than {limit}"


def _possible_reasons(options: Mapping[str, Any], what: str) -> set[str]:
    """What documents, or tokens, can be dropped for."""
    kind = options.get("record_kind")
    has_labels = options["pretokenized"] or options["messages_column"] is not None or kind
    drops_long = options["drop_longer_than"] is not None or options["overlong"] == "drop"
    cuts = options["overlong"] in ("truncate", "truncate_left") or options.get("truncate_to")
    possible = {
        "empty": what == "documents",
        "bad_record": True,
        "unsupervised": has_labels,
        "too_long": drops_long,
        "truncated": what == "tokens" and bool(cuts),
        "row_too_short": int(options["min_length"]) > 1,
        "group_too_long": kind == "preference",
        "skipped_oversized": options["overlong"] == "drop" and str(kind).startswith("vision"),
        "unterminated": what == "tokens" and bool(options.get("in_place")),
    }
    return {reason for reason, is_possible in possible.items() if is_possible}


def _recount_documents(
    found: Recount,
    ids: Ints,
    offsets: Ints,
    lengths: Ints,
    options: Mapping[str, Any],
    ledger: Mapping[str, Any],
    num_eos: int,
) -> dict[str, int]:
    """Tokens emitted and repeated; no token may occur twice except in the overlap of a stride."""
    found.documents = len(np.unique(ids))
    if len(ids):
        found.first_document, found.last_document = int(ids.min()), int(ids.max())
    if (lengths < 1).any():
        found.problems.append("has a fragment without content")
        return {}
    # After a fragment shorter than the stride, the next one begins where that one began.
    order = np.lexsort((offsets + lengths, offsets, ids))
    ids, offsets, stops = ids[order], offsets[order], (offsets + lengths)[order]
    continues = np.append(False, ids[1:] == ids[:-1])[: len(ids)]
    before = np.where(continues, np.append(0, stops)[: len(stops)], 0)
    overlap = np.where(continues, np.maximum(0, before - offsets), 0)
    twice = continues & ((overlap > int(options["stride"])) | (stops <= before))
    if twice.any():
        document = int(ids[int(np.argmax(twice))])
        found.problems.append(f"holds tokens of document {document} twice")
    skipped = int(np.maximum(0, offsets - before).sum())
    if skipped > sum(ledger["tokens"]["dropped"].values()):
        lost = counted(skipped, "token")
        found.problems.append(f"lacks {lost} between fragments, more than its ledger counts")
    if (said := ledger["documents"]["emitted"]) != found.documents:
        documents = counted(found.documents, "document")
        found.problems.append(f"has {documents} but its ledger counts {said}")
    emitted = int((stops - offsets - overlap).sum()) - num_eos
    return {"emitted": emitted, "overlap": int(overlap.sum())}


def _is_trusted(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a reader would use this copy."""
    try:
        index = json.loads((path.parent / "index.json").read_bytes())
        shards: Sequence[Mapping[str, Any]] = manifest["shards"]
        return path.is_file() and bool(index["sha256"] == [shard["sha256"] for shard in shards])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _same_lists(one: pa.Table, other: pa.Table, column: str) -> bool:
    kind = one[column].type
    if not pa.types.is_list(kind) or pa.types.is_nested(kind.value_type):  # images and grids
        return bool(one[column].equals(other[column]))
    try:
        values, lengths = list_column("", one, column)
        others, other_lengths = list_column("", other, column)
    except CorruptFile:
        return bool(one[column].equals(other[column]))
    same = np.array_equal(values, others, equal_nan=values.dtype.kind == "f")
    return same and np.array_equal(lengths, other_lengths)
