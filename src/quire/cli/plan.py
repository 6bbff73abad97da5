"""`quire plan`: what packing would give, from lengths alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from quire.cli import input_options as given
from quire.cli.plan_display import print_json, print_table
from quire.cli.plan_estimate import print_estimate
from quire.errors import InvalidOption, MissingDependency

if TYPE_CHECKING:
    from quire.corpus.lengths import CorpusLengths
    from quire.corpus.options import CorpusOptions
    from quire.plan.comparison import Candidate


def plan(
    inputs: given.Inputs,
    *,
    tokenizer: given.TokenizerName = None,
    max_length: Annotated[
        str | None,
        typer.Option(
            help="Places in a row; several with commas.",
            show_default="2048,4096,8192; with --estimate 4096",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="A strategy; may be repeated. All but tight by default."),
    ] = None,
    overlong: Annotated[
        list[str] | None,
        typer.Option(help="A policy for documents longer than a row; may be repeated."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a training step.")] = 64,
    text_column: given.TextKey = "text",
    messages_column: given.MessagesKey = None,
    tools_column: given.ToolsKey = "tools",
    assistant_only: given.AssistantOnly = True,
    chat_date: given.ChatDate = None,
    pretokenized: given.Pretokenized = False,
    tokens_column: given.TokensKey = "input_ids",
    column: given.Column = None,
    stride: given.Stride = 0,
    min_length: given.MinLen = 1,
    drop_longer_than: given.MaxLen = None,
    max_documents_per_row: given.MaxDocumentsPerRow = None,
    add_bos: given.AddBos = None,
    add_eos: given.AddEos = True,
    truncate_at: given.TruncateAt = None,
    max_record_bytes: given.MaxRecordBytes = "256M",
    max_bad_records: given.MaxBadRecords = 0,
    cache: Annotated[
        bool, typer.Option(help="Keep the lengths, so that the next call takes no time.")
    ] = True,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Tell what packing would take, from a sample."),
    ] = False,
    documents: Annotated[
        int | None, typer.Option(help="With --estimate: of so many documents like these.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="With --estimate: of so many tokens like these.")
    ] = None,
    workers: Annotated[
        str, typer.Option(help="With --estimate: numbers of workers, with commas.")
    ] = "1,8,64",
    partition_size: Annotated[
        str | None, typer.Option(help="With --estimate: text that is packed together.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the table as JSON.")] = False,
) -> None:
    """Compare strategies and lengths before packing: rows, fill, cuts, losses, cost; and advise.

    The corpus is tokenised once; its lengths are kept in the user's cache folder ($QUIRE_CACHE, or
    quire below $XDG_CACHE_HOME), and nothing else is written. Rows are counted as if the whole
    corpus were one partition.

    With --estimate, some megabytes are packed and thrown away, and a table tells for each number of
    workers: partitions, memory, rows and hours of the whole, or of a corpus of so many documents or
    tokens like these.

    Example: quire plan corpus/ --tokenizer byte --max-length 2048,4096,8192

    Example: quire plan corpus/ --tokenizer byte --estimate --tokens 1000000000000 --workers 64,512
    """
    from quire.corpus.options import CorpusOptions
    from quire.options import parse_size

    lengths_asked = _numbers(
        "--max-length", max_length or ("4096" if estimate else "2048,4096,8192")
    )
    options = CorpusOptions(
        max_length=lengths_asked[0],
        text_column=text_column,
        messages_column=messages_column,
        tools_column=tools_column or None,
        assistant_only=assistant_only,
        chat_date=chat_date,
        pretokenized=pretokenized,
        tokens_column=tokens_column,
        columns=tuple(column) if column else None,
        stride=stride,
        min_length=min_length,
        drop_longer_than=drop_longer_than,
        max_documents_per_row=max_documents_per_row,
        add_bos=add_bos,
        add_eos=add_eos,
        truncate_at=truncate_at,
        max_record_bytes=parse_size("--max-record-bytes", max_record_bytes),
        partition_size=None
        if partition_size is None
        else parse_size("--partition-size", partition_size),
    )
    if estimate:
        print_estimate(
            inputs,
            tokenizer,
            _single(options, lengths_asked, strategy, overlong),
            workers=_numbers("--workers", workers),
            documents=documents,
            tokens=tokens,
            max_bad_records=max_bad_records,
            as_json=as_json,
        )
        return
    if documents is not None or tokens is not None:
        raise InvalidOption("--documents and --tokens size an estimate; add --estimate")
    corpus = _counted(inputs, tokenizer, options, _cache_dir() if cache else None, max_bad_records)
    found, notes = _candidates(
        corpus, options, lengths_asked, strategy, overlong or ["split"], batch_size
    )
    _show(corpus, found, notes, None if as_json else batch_size)


def _show(
    corpus: CorpusLengths, found: list[Candidate], notes: list[str], batch_size: int | None
) -> None:
    """Recommend one of the candidates; as a table, or as JSON where no batch size is given."""
    from quire.plan.comparison import offer_tight, recommend

    if not found:
        raise InvalidOption(f"there is nothing to compare: {'; '.join(notes)}")
    if not len(corpus.lengths):
        raise InvalidOption("no document has a token, so there is nothing to plan")
    chosen, reasons = recommend(found)
    reasons += offer_tight(found, chosen)
    if batch_size is None:
        print_json(corpus, found, chosen, [*reasons, *notes])
    else:
        print_table(corpus, found, chosen, [*reasons, *notes], batch_size)


def _numbers(option: str, text: str) -> list[int]:
    try:
        numbers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise InvalidOption(
            f"{option} is {text!r} but must be a number, or some with commas: 2048,4096"
        ) from None
    return numbers


def _single(
    options: CorpusOptions,
    lengths: Sequence[int],
    strategies: Sequence[str] | None,
    policies: Sequence[str] | None,
) -> CorpusOptions:
    """The options of the one way of packing that is asked for."""
    from dataclasses import replace

    for name, values in (
        ("--max-length", lengths),
        ("--strategy", strategies or ()),
        ("--overlong", policies or ()),
    ):
        if len(values) > 1:
            said = ", ".join(map(str, values))
            raise InvalidOption(
                f"an estimate is of one way to pack, but {name} is {said}; give one"
            )
    strategy = strategies[0] if strategies else options.strategy
    overlong: Any = policies[0] if policies else options.overlong
    return replace(options, strategy=strategy, overlong=overlong)


def _cache_dir() -> Path:
    if given_dir := os.environ.get("QUIRE_CACHE"):
        return Path(given_dir) / "lengths"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "quire" / "lengths"


def _counted(
    inputs: Sequence[str],
    tokenizer: str | None,
    options: CorpusOptions,
    cache_dir: Path | None,
    budget: int,
) -> CorpusLengths:
    from quire.corpus.lengths import corpus_lengths
    from quire.progress import ByteProgress

    with ByteProgress("counting tokens") as progress:
        return corpus_lengths(
            inputs,
            tokenizer,
            options,
            cache_dir=cache_dir,
            max_bad_records=budget,
            on_start=progress.start,
            on_progress=lambda done: progress.advance(done.num_bytes),
        )


def _candidates(
    corpus: CorpusLengths,
    options: CorpusOptions,
    lengths: Sequence[int],
    strategies: Sequence[str] | None,
    policies: Sequence[Any],
    batch_size: int,
) -> tuple[list[Candidate], list[str]]:
    from dataclasses import replace

    from quire.plan import quick_strategy_names
    from quire.plan.comparison import compare

    found: list[Candidate] = []
    notes: list[str] = []
    supervised = corpus.supervised()
    for name in strategies or quick_strategy_names():
        try:
            asked = [
                corpus.plan_options(
                    replace(options, max_length=n, strategy=name, overlong=policy).plan_options(0)
                )
                for n in lengths
                for policy in policies
            ]
            with Console(stderr=True).status(f"planning: {name}"):
                found += compare(
                    corpus.lengths, asked, batch_size=batch_size, supervised=supervised
                )
        except MissingDependency as missing:
            notes.append(str(missing))
    return sorted(found, key=lambda one: (one.max_length, one.overlong, one.strategy)), notes
