"""`pack_dataset`: a whole dataset to rows, in one pass over its tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.dataset.records import Packed, Records, as_table, like_input
from quire.dataset.sources import PackSource, documents_of
from quire.documents import Documents, EncodeOptions, TokenizerLike, gather
from quire.errors import unknown_name
from quire.ledger import Ledger
from quire.plan import Plan, PlanOptions, keeps_order, plan_documents
from quire.plan.fragments import Fragments
from quire.plan.groups import plan_groups
from quire.plan.strategies import Supervised

IGNORE = -100


def pack_dataset(
    dataset: Records | Mapping[str, Records],
    tokenizer: TokenizerLike | None = None,
    *,
    max_length: int,
    feature: str = "text",
    strategy: str = "best_fit",
    overlong: str = "split",
    columns: Sequence[str] | None = None,
    messages: str | None = None,
    assistant_only: bool = True,
    group: str | None = None,
    stride: int = 0,
    min_len: int = 1,
    max_len: int | None = None,
    min_fragment: int = 1,
    max_documents_per_row: int | None = None,
    align: int = 1,
    add_bos: bool = True,
    add_eos: bool = True,
    truncate_at: str | None = None,
    shuffle: bool | None = None,
    seed: int | None = 42,
    keep_source: bool = False,
    max_bad_records: int = 0,
    progress: bool | None = None,
    return_ledger: bool = False,
) -> Packed | Mapping[str, Packed] | tuple[Packed, Ledger] | tuple[object, dict[str, Ledger]]:
    """The dataset packed as a whole, with ``document_starts``; and the ledger if asked.

    ``dataset`` is a `datasets.Dataset`, a dict of them, an Arrow table or a list of dicts. It is
    taken as tokenised where it has ``input_ids`` and no tokenizer is given; then ``columns`` (by
    default every per-token list column) go along with the tokens through every cut. With a
    tokenizer, ``feature`` is text, or ``messages`` are conversations for its chat template, whose
    labels train what the assistant says. Documents with equal ``group`` stand in the same row.
    Rows are shuffled by ``seed`` unless the strategy keeps their order. A Dataset comes back as a
    Dataset, anything else as an Arrow table. The cost is one copy of the tokens.

    >>> rows = pack_dataset([{"text": "abc"}, {"text": "de"}], "byte", max_length=10)
    >>> rows.to_pylist()
    [{'input_ids': [1, 100, 101, 102, 2, 1, 103, 104, 2], 'document_starts': [0, 5]}]
    """
    source = PackSource(
        tokenizer=tokenizer,
        feature=feature,
        columns=columns,
        messages=messages,
        assistant_only=assistant_only,
        encode=EncodeOptions(
            add_bos=add_bos, add_eos=add_eos, max_len=max_len, truncate_at=truncate_at
        ),
        max_bad_records=max_bad_records,
        progress=progress,
    )
    shape = PlanOptions(
        capacity=max_length,
        strategy=strategy,
        overlong=overlong,
        stride=stride,
        min_length=min_len,
        min_fragment=min_fragment,
        max_documents_per_row=max_documents_per_row,
        align=align,
        shuffle=not keeps_order(strategy) if shuffle is None else shuffle,
        seed=seed,
    )
    if not isinstance(dataset, Mapping):
        rows, ledger = _pack(dataset, source, shape, group, keep_source)
        return (rows, ledger) if return_ledger else rows
    splits = {
        name: _pack(part, source, shape, group, keep_source) for name, part in dataset.items()
    }
    kind: Callable[[object], Mapping[str, Packed]] = type(dataset)  # a DatasetDict, or a dict
    packed = kind({name: rows for name, (rows, _) in splits.items()})
    ledgers = {name: ledger for name, (_, ledger) in splits.items()}
    return (packed, ledgers) if return_ledger else packed


def _pack(
    records: Records, source: PackSource, shape: PlanOptions, group: str | None, keep_source: bool
) -> tuple[Packed, Ledger]:
    table = as_table(records)
    documents = documents_of(table, source)
    plan = _plan(table, documents, documents.terms(shape), group)
    rows = gather(documents, plan, keep_source=keep_source)
    settings = (source, shape, group, keep_source)
    return like_input(rows, records, settings), documents.ledger + plan.ledger


def _plan(table: pa.Table, documents: Documents, options: PlanOptions, group: str | None) -> Plan:
    if group is not None:
        return plan_groups(documents.lengths, _group_numbers(table, group, documents), options)
    return plan_documents(documents.lengths, options, _supervised(documents))


def _group_numbers(table: pa.Table, group: str, documents: Documents) -> npt.NDArray[np.int64]:
    """One number for each distinct value of the column; a document without one is alone."""
    if group not in table.column_names:
        raise unknown_name("column", group, table.column_names)
    column = table[group].combine_chunks()
    numbers = pc.fill_null(column.dictionary_encode().indices, -1).to_numpy(zero_copy_only=False)
    alone = np.flatnonzero(numbers < 0)
    numbers = numbers.astype(np.int64)
    numbers[alone] = len(numbers) + alone
    of_documents: npt.NDArray[np.int64] = numbers[documents.numbers]
    return of_documents


def _supervised(documents: Documents) -> Supervised | None:
    """A judge of fragments: whether any given label in them is trained."""
    if "labels" not in documents.columns:
        return None
    labels = documents.columns["labels"].to_numpy(zero_copy_only=False)
    trained = np.append(0, np.cumsum(labels != IGNORE))

    def supervised(fragments: Fragments) -> npt.NDArray[np.bool]:
        at = documents.offsets[fragments.documents]
        one_token = documents.lengths[fragments.documents] == 1
        counts = trained[at + fragments.stops] - trained[at + fragments.starts]
        taught: npt.NDArray[np.bool] = (counts > 0) | one_token
        return taught

    return supervised
