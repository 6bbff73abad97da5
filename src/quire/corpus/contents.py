"""What stands in a shard: packed rows, or documents as they are with a plan made later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.corpus.encoding import FILE_SHIFT
from quire.corpus.options import CorpusOptions
from quire.corpus.shards import shard_schema
from quire.dataset.supervision import supervised_by_labels
from quire.documents import Documents
from quire.errors import InvalidOption, OversizedDocument
from quire.formats.files import InputFile
from quire.gather import gather
from quire.ledger import Ledger, Tally, TokenTally
from quire.plan import make_plan, plan_documents
from quire.text.option_words import words_of_packing

DOCUMENT_ID, LENGTH = "document_id", "length"


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """The records of one shard, and what became of its documents."""

    records: pa.Table
    tokens: int
    ledger: Ledger
    record_length: int
    """About how many tokens a record has."""


def packed_rows(
    documents: Documents,
    options: CorpusOptions,
    seed: int,
    columns: Mapping[str, str],
    files: Sequence[InputFile],
) -> Contents:
    """The rows that these documents are packed into."""
    with words_of_packing():
        shape = documents.terms(options.plan_options(seed))
        require_none_overlong(documents, options, files)
        plan = plan_documents(documents.lengths, shape, supervised_by_labels(documents))
    rows = gather(documents, plan, keep_sources=options.keep_sources)
    ledger = documents.ledger + plan.ledger
    del documents  # its tokens are in the rows now
    return Contents(
        records=rows.cast(shard_schema(columns, options.keep_sources)),
        tokens=int(plan.row_lengths.sum(dtype=np.int64)),
        ledger=ledger,
        record_length=options.max_length,
    )


def require_none_overlong(
    documents: Documents, options: CorpusOptions, files: Sequence[InputFile]
) -> None:
    """Raise for the first document that no row holds, where that is to be an error."""
    if options.overlong == "error":
        longest = documents.terms(options.plan_options(options.seed)).max_fragment
        names = [str(file.path) for file in files]
        require_fitting(documents.lengths, longest, documents.numbers, names)


def require_fitting(
    lengths: npt.NDArray[np.int64],
    longest: int,
    ids: npt.NDArray[np.int64],
    files: Sequence[str],
) -> None:
    """Raise for a document that does not fit, by its file and record; the planner knows neither."""
    overlong = lengths > longest
    if overlong.any():
        first = int(np.argmax(overlong))
        file, record = divmod(int(ids[first]), 1 << FILE_SHIFT)
        raise OversizedDocument(
            f"{files[file]}: record {record} has {lengths[first]} tokens but a row holds "
            f"{longest}; split it (overlong='split'), truncate it (overlong='truncate') or raise "
            "max_length"
        )


def whole_documents(documents: Documents, columns: Mapping[str, str]) -> Contents:
    """A record a document: its id, its length, its tokens with their EOS, without the opening BOS.

    The length stands apart, so that a plan can be made without reading a token.
    """
    lengths, ids, before = documents.lengths, documents.numbers, documents.ledger
    longest = int(lengths.max(initial=1))
    each = make_plan(lengths, longest, "greedy", max_documents_per_row=1)
    table = gather(replace(documents, prefix_at=None), each)
    del documents
    schema = document_schema(columns)
    own = {DOCUMENT_ID: pa.array(ids), LENGTH: pa.array(lengths)}
    every = [own[name] if name in own else table[name] for name in schema.names]
    tokens = int(lengths.sum(dtype=np.int64))
    kept = Ledger(
        documents=Tally(input=len(lengths), emitted=len(lengths)),
        tokens=TokenTally(input=tokens, emitted=tokens),
    )
    return Contents(
        records=pa.table(every, names=schema.names).cast(schema),
        tokens=tokens,
        ledger=before + kept,
        record_length=max(1, tokens // max(1, len(lengths))),
    )


def document_schema(columns: Mapping[str, str]) -> pa.Schema:
    """The columns of a shard of documents."""
    for name in (DOCUMENT_ID, LENGTH):
        if name in columns:
            raise InvalidOption(
                f"an index-only output has a column {name!r} of its own; rename that of the input"
            )
    rows = shard_schema(columns, keep_sources=False)
    lists = [field for field in rows if field.name != "document_starts"]
    return pa.schema([(DOCUMENT_ID, pa.int64()), (LENGTH, pa.int64()), *lists])
