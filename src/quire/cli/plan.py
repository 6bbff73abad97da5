"""`quire plan`: what packing would give, from the lengths of documents."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quire.cli.console import warnings_as_lines
from quire.cli.options import (
    AsJson,
    CorpusFormat,
    ImageRoot,
    Inputs,
    MaxBadRecords,
    TokenizerName,
    options_of,
)
from quire.cli.plan_tables import print_estimate, print_json, print_table
from quire.corpus.options import IMAGE_OPTIONS, CorpusOptions
from quire.errors import InvalidOption, MissingDependency
from quire.options import known_options
from quire.progress import stage

if TYPE_CHECKING:
    from quire.corpus.lengths import CorpusLengths
    from quire.plan.comparison import Candidate
    from quire.plan.planner import Supervised


_LEFT_OUT = (
    *("max_length", "strategy", "overlong", "shuffle", "seed", "keep_sources", "index_only"),
    "partition_size",
)
_ESTIMATE = "With --estimate"


@options_of(CorpusOptions, leave_out=_LEFT_OUT)
def plan(
    inputs: Inputs,
    *,
    tokenizer: TokenizerName = None,
    max_length: Annotated[
        str | None,
        typer.Option(
            help="The most tokens in a row; several with commas.",
            show_default="2048,4096,8192; with --estimate 4096",
        ),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(help="A strategy; may be repeated.", show_default="all but tight"),
    ] = None,
    overlong: Annotated[
        list[str] | None,
        typer.Option(
            help="What happens to documents longer than a row; may be repeated.",
            show_default="split; with images drop",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a training step.")] = 64,
    format: CorpusFormat = None,  # noqa: A002
    max_bad_records: MaxBadRecords = 0,
    image_root: ImageRoot = None,
    cache: Annotated[bool, typer.Option(help="Keep the lengths for the next call.")] = True,
    as_json: AsJson = False,
    options: dict[str, Any],
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Estimate time and memory of packing, from a sample.",
            rich_help_panel=_ESTIMATE,
        ),
    ] = False,
    documents: Annotated[
        int | None,
        typer.Option(help="For this many documents like these.", rich_help_panel=_ESTIMATE),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="For this many tokens like these.", rich_help_panel=_ESTIMATE),
    ] = None,
    workers: Annotated[
        str, typer.Option(help="Numbers of workers, with commas.", rich_help_panel=_ESTIMATE)
    ] = "1,8,64",
    partition_size: Annotated[
        str | None,
        typer.Option(help="Bytes of text packed together: 64M, 1G.", rich_help_panel=_ESTIMATE),
    ] = None,
) -> None:
    """Compare strategies and row lengths before packing.

    The corpus is tokenized once; its lengths are kept in the user's cache folder ($QUIRE_CACHE, or
    quire in $XDG_CACHE_HOME), and nothing else is written. Rows are counted as if the whole corpus
    were one partition.

    With --estimate, a few megabytes are packed and thrown away, and a table shows partitions,
    memory, rows and hours for each number of workers: for these inputs, or for a similar corpus
    with the given number of documents or tokens.

    Example: quire plan corpus/ --tokenizer byte --max-length 2048,4096,8192

    Example: quire plan corpus/ --tokenizer byte --estimate --tokens 1000000000
    """
    lengths_asked = _numbers(
        "--max-length", max_length or ("4096" if estimate else "2048,4096,8192")
    )
    given = {**options, "max_length": lengths_asked[0], "partition_size": partition_size}
    corpus_options = CorpusOptions(**known_options(CorpusOptions, given))
    if estimate:
        if image_root is not None:
            raise InvalidOption(
                "an estimate finds images beside the inputs only; leave --image-root out"
            )
        with warnings_as_lines():
            print_estimate(
                inputs,
                tokenizer,
                _single(corpus_options, lengths_asked, strategy, overlong),
                workers=_numbers("--workers", workers),
                documents=documents,
                tokens=tokens,
                max_bad_records=max_bad_records,
                as_json=as_json,
            )
        return
    if documents is not None or tokens is not None:
        raise InvalidOption("--documents and --tokens are for estimates; add --estimate")
    ways = _ways(corpus_options, lengths_asked, strategy, overlong or ["split"])
    cache_dir = _cache_dir() if cache else None
    with warnings_as_lines():
        corpus = _counted(
            inputs, tokenizer, corpus_options, cache_dir, max_bad_records, format, image_root
        )
    ways = _possible(corpus, ways, strategy, overlong)
    found, notes = _candidates(corpus, ways, batch_size)
    if not found:
        raise InvalidOption(f"there is nothing to compare: {'; '.join(notes)}")
    if not len(corpus.lengths):
        raise InvalidOption("the corpus has no tokens, so there is nothing to plan")
    chosen, reasons = _recommended(found)
    if as_json:
        print_json(corpus, found, chosen, [*reasons, *notes])
    else:
        others = ""
        if corpus.samples is not None:
            others = _image_options(corpus_options, image_root)
        print_table(corpus, found, chosen, [*reasons, *notes], batch_size, others)


def _image_options(options: CorpusOptions, image_root: str | None) -> str:
    """The options about images that were given, as `quire pack` takes them."""
    given = (
        (name, getattr(options, name), field.default)
        for field in fields(options)
        if (name := field.name) in (*IMAGE_OPTIONS, "record_kind")
    )
    root = "" if image_root is None else f" --image-root {shlex.quote(image_root)}"
    return root + "".join(
        f" --{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
        for name, value, default in given
        if value != default
    )


def _recommended(found: list[Candidate]) -> tuple[Candidate, list[str]]:
    from quire.plan.comparison import offer_tight, recommend

    chosen, reasons = recommend(found)
    return chosen, [*reasons, *offer_tight(found, chosen)]


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
    """The options of the single way of packing to estimate."""
    from dataclasses import replace

    for name, values in (
        ("--max-length", lengths),
        ("--strategy", strategies or ()),
        ("--overlong", policies or ()),
    ):
        if len(values) > 1:
            said = ", ".join(map(str, values))
            raise InvalidOption(
                f"an estimate is for one way to pack, but {name} is {said}; give one"
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
    form: str | None,
    image_root: str | None,
) -> CorpusLengths:
    from quire.cli.progress import PackProgress
    from quire.corpus.lengths import corpus_lengths

    with PackProgress(stage="counting tokens") as display:
        return corpus_lengths(
            inputs,
            tokenizer,
            options,
            cache_dir=cache_dir,
            format=form,
            max_bad_records=budget,
            image_root=None if image_root is None else Path(image_root),
            on_start=display.start_bytes,
            on_progress=display.advance,
        )


def _ways(
    options: CorpusOptions,
    lengths: Sequence[int],
    strategies: Sequence[str] | None,
    policies: Sequence[Any],
) -> list[CorpusOptions]:
    """The ways of packing to compare, checked before anything is read."""
    from dataclasses import replace

    from quire.plan import quick_strategy_names

    return [
        replace(options, max_length=length, strategy=name, overlong=policy)
        for name in strategies or quick_strategy_names()
        for length in lengths
        for policy in policies
    ]


def _possible(
    corpus: CorpusLengths,
    ways: Sequence[CorpusOptions],
    strategies: Sequence[str] | None,
    policies: Sequence[Any] | None,
) -> list[CorpusOptions]:
    """The ways that `quire pack` accepts for these records; one that was asked for must be."""
    from dataclasses import replace

    if corpus.samples is None:
        return list(ways)
    if not policies:
        ways = [replace(way, overlong="drop") for way in ways]
    possible = []
    for way in ways:
        try:
            corpus.require_possible(way)
        except InvalidOption:
            if strategies:
                raise
            corpus.require_possible(replace(way, strategy="exact_fit"))  # raises for the rest
        else:
            possible.append(way)
    return possible


def _candidates(
    corpus: CorpusLengths, ways: Sequence[CorpusOptions], batch_size: int
) -> tuple[list[Candidate], list[str]]:
    found: list[Candidate] = []
    notes: list[str] = []
    supervised = corpus.supervised()
    with stage("planning", len(ways)) as advance:
        for way in ways:
            try:
                found.append(_candidate(corpus, way, batch_size, supervised))
            except MissingDependency as missing:
                notes += [str(missing)] if str(missing) not in notes else []
            advance(1)
    return sorted(found, key=lambda one: (one.max_length, one.overlong, one.strategy)), notes


def _candidate(
    corpus: CorpusLengths, way: CorpusOptions, batch_size: int, supervised: Supervised | None
) -> Candidate:
    """The figures of one way to pack these documents."""
    from dataclasses import replace

    from quire.corpus.vision_plan import plan_with_drops, rows_needed
    from quire.plan.comparison import candidate_of, compare

    options = corpus.plan_options(way)
    if corpus.samples is None:
        return compare(corpus.lengths, [options], batch_size=batch_size, supervised=supervised)[0]
    plan, places, dropped = plan_with_drops(corpus.samples, options, way, supervised)
    kept = corpus.samples.take(places)
    found = candidate_of(
        plan,
        kept.lengths,
        batch_size,
        dropped=dropped,
        bound=rows_needed(plan, kept, way),
    )
    return replace(found, strategy=way.strategy, overlong=way.overlong)
