"""`pack_dataset`: a whole dataset to rows, in one pass over its tokens."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.dataset.documents import documents_of
from quire.dataset.options import DatasetOptions
from quire.dataset.pairs import planned_pairs
from quire.dataset.records import Columns, Packed, Records, as_columns, require_name
from quire.dataset.rows import like_input, trained_tokens, with_boundary_columns
from quire.dataset.supervision import supervised_by_labels, teaching_groups
from quire.documents import Documents
from quire.errors import InvalidDocument, QuireError
from quire.gather import gather
from quire.ledger import Ledger, TokenTally
from quire.options import known_options, takes_options
from quire.plan import Plan, plan_documents
from quire.plan.groups import plan_groups
from quire.printable import counted
from quire.text import TokenizerLike
from quire.text.chat.date import today


@takes_options(DatasetOptions)
def pack_dataset(
    dataset: Records | Mapping[str, Records],
    tokenizer: TokenizerLike | None = None,
    **named: Any,  # noqa: ANN401 - the fields of DatasetOptions
) -> Packed | Mapping[str, Packed] | tuple[Packed, Ledger] | tuple[object, dict[str, Ledger]]:
    """The dataset packed as a whole, with ``document_starts``; and the ledger if asked for.

    ``pack_dataset(dataset, tokenizer, max_length=..., ...)`` takes the options of `DatasetOptions`
    as keywords. ``dataset`` is a `datasets.Dataset`, a dict of them, an Arrow table or a list of
    dicts. It is taken as tokenized if it has ``input_ids``; then ``columns`` (by default every
    per-token list column) are cut together with the tokens. Otherwise ``text_column`` is text, or
    ``messages_column`` holds conversations for the tokenizer's chat template, whose labels train
    what the assistant says. A Dataset comes back as a Dataset, anything else as an Arrow table. The
    cost is one copy of the tokens.

    >>> rows = pack_dataset([{"text": "abc"}, {"text": "de"}], "byte", max_length=10)
    >>> rows.to_pylist()
    [{'input_ids': [1, 100, 101, 102, 2, 1, 103, 104, 2], 'document_starts': [0, 5]}]
    """
    options = DatasetOptions(tokenizer, **known_options(DatasetOptions, named))
    if isinstance(dataset, Mapping):
        packed, ledgers = _pack_splits(dataset, options)
        _warn_of_drops(sum(ledgers.values(), Ledger()), options.return_ledger)
        return (packed, ledgers) if options.return_ledger else packed
    rows, ledger = _pack(dataset, options, today())
    _warn_of_drops(ledger, options.return_ledger)
    return (rows, ledger) if options.return_ledger else rows


def _pack_splits(
    splits: Mapping[str, Records], options: DatasetOptions
) -> tuple[Mapping[str, Packed], dict[str, Ledger]]:
    rows, ledgers, day = {}, {}, today()  # one day for all splits
    for name, records in splits.items():
        try:
            rows[name], ledgers[name] = _pack(records, options, day)
        except QuireError as error:
            error.add_note(f"in split {name!r}")
            raise
    kind: Callable[[object], Mapping[str, Packed]] = type(splits)  # a DatasetDict, or a dict
    return kind(rows), ledgers


def _pack(records: Records, options: DatasetOptions, day: datetime.date) -> tuple[Packed, Ledger]:
    columns = as_columns(records)
    if options.group_column is not None:
        require_name(columns, options.group_column)  # before hours of tokenizing
    documents, plan = _planned(documents_of(columns, options, day), columns, options)
    rows = gather(documents, plan, keep_sources=options.keep_sources)
    trained = TokenTally(trained=trained_tokens(rows))
    rows = with_boundary_columns(
        rows, position_ids=options.position_ids, seq_lengths=options.seq_lengths
    )
    tokens_are_given = options.tokenizer is None
    return (
        like_input(rows, records, documents, plan, tokens_are_given),
        documents.ledger + plan.ledger + Ledger(tokens=trained),
    )


def _planned(
    documents: Documents, columns: Columns, options: DatasetOptions
) -> tuple[Documents, Plan]:
    """The plan, and the documents in it: groups without a trained label are dropped before."""
    if documents.is_paired:
        return planned_pairs(documents, documents.plan_options(options))
    if options.group_column is None:
        supervised = supervised_by_labels(documents)
        terms = documents.plan_options(options)
        return documents, plan_documents(documents.lengths, terms, supervised)
    numbers = _group_numbers(columns, options.group_column)[documents.numbers]
    documents, numbers = teaching_groups(documents, numbers)
    terms = documents.plan_options(options)
    return documents, plan_groups(documents.lengths, numbers, terms)


def _group_numbers(columns: Columns, name: str) -> npt.NDArray[np.int64]:
    """A number per record, the same for equal values; a record without a value is its own group."""
    column = columns.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        indices = pc.dictionary_encode(column).unify_dictionaries()
    except pa.ArrowNotImplementedError as error:
        raise InvalidDocument(
            f"column {name!r} holds {column.type}, whose values cannot be compared; group by a "
            "column of numbers or text"
        ) from error
    parts = [pc.fill_null(chunk.indices, -1) for chunk in indices.chunks]
    numbers = np.concatenate([np.zeros(0, np.int64), *(part.to_numpy() for part in parts)])
    alone = np.flatnonzero(numbers < 0)
    numbers[alone] = len(numbers) + alone
    return numbers


def _warn_of_drops(ledger: Ledger, is_returned: bool) -> None:
    """Warn of drops, unless the caller receives the ledger and some rows."""
    dropped = {**ledger.documents.dropped, **ledger.tokens.dropped}
    if not dropped or (is_returned and ledger.tokens.emitted):
        return
    what = ", ".join(
        f"{reason}: {counted(ledger.documents.dropped[reason], 'document')}, "
        f"{counted(ledger.tokens.dropped[reason], 'token')}"
        for reason in sorted(dropped)
    )
    left = "" if ledger.tokens.emitted else " and nothing is left"
    warnings.warn(
        f"pack_dataset dropped {what}{left}; return_ledger=True gives the counts", stacklevel=3
    )
