"""`pack_dataset`: a whole dataset to rows, in one pass over its tokens."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Mapping, Sequence

from quire.dataset.groups import group_numbers
from quire.dataset.records import Columns, Packed, Records, as_columns, require_name
from quire.dataset.rows import AddedColumns, like_input, with_boundary_columns
from quire.dataset.sources import PackSource, documents_of
from quire.dataset.supervision import supervised_by_labels, teaching_groups
from quire.documents import Documents
from quire.errors import QuireError
from quire.gather import gather
from quire.keywords import names_near_keywords
from quire.ledger import Ledger
from quire.options import require_flag
from quire.plan import Plan, PlanOptions, keeps_order, plan_documents
from quire.plan.groups import plan_groups
from quire.plan.options import Overlong
from quire.text import EncodeOptions, TokenizerLike
from quire.text.option_words import words_of_packing


@names_near_keywords
def pack_dataset(
    dataset: Records | Mapping[str, Records],
    tokenizer: TokenizerLike | None = None,
    *,
    max_length: int,
    text_column: str = "text",
    strategy: str = "best_fit",
    overlong: Overlong = "split",
    columns: Sequence[str] | None = None,
    messages_column: str | None = None,
    tools_column: str | None = "tools",
    assistant_only: bool = True,
    chat_date: datetime.date | str | None = None,
    group_column: str | None = None,
    stride: int = 0,
    min_length: int = 1,
    drop_longer_than: int | None = None,
    min_fragment: int = 1,
    max_documents_per_row: int | None = None,
    align: int = 1,
    add_bos: bool | None = None,
    add_eos: bool = True,
    truncate_at: str | None = None,
    shuffle: bool | None = None,
    seed: int | None = 0,
    keep_sources: bool = False,
    position_ids: bool = False,
    seq_lengths: bool = False,
    max_bad_records: int = 0,
    progress: bool | None = None,
    return_ledger: bool = False,
) -> Packed | Mapping[str, Packed] | tuple[Packed, Ledger] | tuple[object, dict[str, Ledger]]:
    """The dataset packed as a whole, with ``document_starts``; and the ledger if asked.

    ``dataset`` is a `datasets.Dataset`, a dict of them, an Arrow table or a list of dicts. It is
    taken as tokenised where it has ``input_ids``; then ``columns`` (by default every per-token list
    column) go along with the tokens through every cut, and a tokenizer, if given, says which ids
    there are. Otherwise ``text_column`` holds text, or ``messages_column`` conversations for the
    tokenizer's chat template, with labels on what the assistant says; the template receives the
    ``tools_column`` of each conversation, if there is one, and ``chat_date`` (today by default)
    when it asks for a date. Documents with equal values in ``group_column`` are packed into the
    same row. ``keep_sources`` adds where each fragment comes from, ``position_ids`` and
    ``seq_lengths`` add the boundaries in the forms that transformers' Trainer and TRL's SFTTrainer
    keep.
    Rows are shuffled by ``seed`` unless the strategy keeps their order. A Dataset comes back as a
    Dataset, anything else as an Arrow table. The cost is one copy of the tokens.

    >>> rows = pack_dataset([{"text": "abc"}, {"text": "de"}], "byte", max_length=10)
    >>> rows.to_pylist()
    [{'input_ids': [1, 100, 101, 102, 2, 1, 103, 104, 2], 'document_starts': [0, 5]}]
    """
    require_flag("return_ledger", return_ledger)
    added = AddedColumns(
        keep_sources=keep_sources, position_ids=position_ids, seq_lengths=seq_lengths
    )
    source = PackSource(
        tokenizer=tokenizer,
        text_column=text_column,
        columns=columns,
        messages_column=messages_column,
        tools_column=tools_column,
        assistant_only=assistant_only,
        chat_date=chat_date,
        encode=EncodeOptions(
            add_bos=add_bos,
            add_eos=add_eos,
            drop_longer_than=drop_longer_than,
            truncate_at=truncate_at,
        ),
        max_bad_records=max_bad_records,
        progress=progress,
    )
    with words_of_packing():
        shape = PlanOptions(
            max_length=max_length,
            strategy=strategy,
            overlong=overlong,
            stride=stride,
            min_length=min_length,
            min_fragment=min_fragment,
            max_documents_per_row=max_documents_per_row,
            align=align,
            shuffle=not keeps_order(strategy) if shuffle is None else shuffle,
            seed=seed,
        )
    if isinstance(dataset, Mapping):
        packed, ledgers = _pack_splits(dataset, source, shape, group_column, added)
        _warn_of_drops(sum(ledgers.values(), Ledger()), return_ledger)
        return (packed, ledgers) if return_ledger else packed
    rows, ledger = _pack(dataset, source, shape, group_column, added)
    _warn_of_drops(ledger, return_ledger)
    return (rows, ledger) if return_ledger else rows


def _pack_splits(
    splits: Mapping[str, Records],
    source: PackSource,
    shape: PlanOptions,
    group_column: str | None,
    added: AddedColumns,
) -> tuple[Mapping[str, Packed], dict[str, Ledger]]:
    rows, ledgers = {}, {}
    for name, records in splits.items():
        try:
            rows[name], ledgers[name] = _pack(records, source, shape, group_column, added)
        except QuireError as error:
            error.add_note(f"in split {name!r}")
            raise
    kind: Callable[[object], Mapping[str, Packed]] = type(splits)  # a DatasetDict, or a dict
    return kind(rows), ledgers


def _pack(
    records: Records,
    source: PackSource,
    shape: PlanOptions,
    group_column: str | None,
    added: AddedColumns,
) -> tuple[Packed, Ledger]:
    columns = as_columns(records)
    if group_column is not None:
        require_name(columns, group_column)  # before hours of tokenizing
    documents = documents_of(columns, source)
    with words_of_packing():
        documents, plan = _planned(documents, columns, shape, group_column)
    rows = gather(documents, plan, keep_sources=added.keep_sources)
    rows = with_boundary_columns(rows, added)
    tokens_are_given = source.tokenizer is None
    return (
        like_input(rows, records, documents, plan, tokens_are_given),
        documents.ledger + plan.ledger,
    )


def _planned(
    documents: Documents, columns: Columns, shape: PlanOptions, group_column: str | None
) -> tuple[Documents, Plan]:
    """The plan, and the documents that it is of: groups that teach nothing leave before it."""
    if group_column is None:
        judge = supervised_by_labels(documents)
        return documents, plan_documents(documents.lengths, documents.plan_options(shape), judge)
    numbers = group_numbers(columns, group_column)[documents.numbers]
    documents, numbers = teaching_groups(documents, numbers)
    return documents, plan_groups(documents.lengths, numbers, documents.plan_options(shape))


def _warn_of_drops(ledger: Ledger, is_returned: bool) -> None:
    """Say what was left out, unless the caller gets it told by the ledger; say if it was all."""
    dropped = {**ledger.documents.dropped, **ledger.tokens.dropped}
    if not dropped or (is_returned and ledger.tokens.emitted):
        return
    what = ", ".join(
        f"{reason}: {ledger.documents.dropped[reason]} documents, "
        f"{ledger.tokens.dropped[reason]} tokens"
        for reason in sorted(dropped)
    )
    left = "" if ledger.tokens.emitted else " and nothing is left"
    warnings.warn(
        f"pack_dataset dropped {what}{left}; return_ledger=True gives the counts", stacklevel=4
    )
