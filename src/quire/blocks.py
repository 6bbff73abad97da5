"""Texts of one batch to rows: the function for `datasets.map`, with Forgather's option names."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quire.compat.bins import Bin, Document, pack_sequences_optimized, split_document_optimally
from quire.errors import InvalidDocument, InvalidOption, unknown_name
from quire.gather import gather
from quire.ledger import Ledger
from quire.options import Count, EncodeOptions, Positive, Seed, TokenizerEngine, validate
from quire.options.rules import Pattern
from quire.plan import Plan, PlanOptions, plan_documents, strategy_names
from quire.printable import counted
from quire.text import TokenizerLike, encode_texts
from quire.text.engine import open_tokenizer

__all__ = [
    "Bin",
    "BlockOptions",
    "Document",
    "PackedRows",
    "block_tokenize_fn",
    "pack_sequences_optimized",
    "pack_texts",
    "split_document_optimally",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockOptions:
    """The options of `block_tokenize_fn`, under its names."""

    max_length: Positive = 512
    """The most tokens in a row."""
    overflow: bool = True
    """Split documents that are longer than a row; otherwise cut them and count what is cut."""
    packed: bool = False
    """Put several documents into a row; otherwise a row is one fragment."""
    packing_strategy: str = "greedy"
    """A strategy of the planner; ``greedy`` with ``overflow`` fills rows completely, in order."""
    shuffle_output: bool = False
    seed: Seed | None = 42
    """Seeds the shuffle; None draws new entropy each time."""
    stride: Count = 0
    """Tokens of the document repeated at the start of each continuation."""
    min_len: Positive = 1
    """Rows with fewer tokens are dropped and counted."""
    max_len: Positive | None = None
    """Documents with more tokens (BOS counts, EOS does not) are dropped as ``too_long``."""
    add_bos: bool = True
    """Start every fragment with BOS, if the tokenizer has one."""
    add_eos: bool = True
    """End every document with EOS, if the tokenizer has one."""
    truncate_at: Pattern | None = None
    """A regular expression; the text is cut before its first match."""
    tokenizer_engine: TokenizerEngine = "auto"
    """The library that tokenizes; all give the same ids."""

    def __post_init__(self) -> None:
        validate(self)
        if self.packing_strategy not in strategy_names():
            raise unknown_name("packing_strategy", self.packing_strategy, strategy_names())
        if self.min_len > self.max_length:
            raise InvalidOption(
                f"min_len={self.min_len} would drop every row, as a row holds at most "
                f"max_length={self.max_length} tokens; lower min_len or raise max_length"
            )

    def encode_options(self) -> EncodeOptions:
        """The part that the encoder takes, under its names."""
        return EncodeOptions(
            add_bos=self.add_bos,
            add_eos=self.add_eos,
            drop_longer_than=self.max_len,
            truncate_at=self.truncate_at,
        )

    def plan_options(self) -> PlanOptions:
        """The part that the planner takes, under its names."""
        strategy = self.packing_strategy if self.packed else "greedy"
        if self.packed and self.overflow and strategy == "greedy":
            strategy = "wrapped"
        return PlanOptions(
            max_length=self.max_length,
            strategy=strategy,
            overlong="split" if self.overflow else "truncate",
            stride=self.stride,
            min_length=self.min_len,
            max_documents_per_row=None if self.packed else 1,
            shuffle=self.shuffle_output,
            seed=self.seed,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedRows:
    """Rows of tokens with their boundaries, and the ledger of every token."""

    input_ids: list[list[int]]
    document_starts: list[list[int]]
    ledger: Ledger
    plan: Plan


def pack_texts(
    texts: Sequence[str], tokenizer: TokenizerLike, options: BlockOptions | None = None
) -> PackedRows:
    """The texts packed into rows, with the ledger.

    >>> rows = pack_texts(["abc", "de"], "byte", BlockOptions(max_length=10, packed=True))
    >>> rows.input_ids
    [[1, 100, 101, 102, 2, 1, 103, 104, 2]]
    >>> rows.document_starts
    [[0, 5]]
    """
    options = options or BlockOptions()
    texts = _checked_texts(texts)
    documents = encode_texts(
        texts, open_tokenizer(tokenizer, options.tokenizer_engine), options.encode_options()
    )
    plan = plan_documents(documents.lengths, documents.plan_options(options.plan_options()))
    table = gather(documents, plan)
    return PackedRows(
        input_ids=table["input_ids"].to_pylist(),
        document_starts=table["document_starts"].to_pylist(),
        ledger=documents.ledger + plan.ledger,
        plan=plan,
    )


def block_tokenize_fn(
    features: Mapping[str, Sequence[str]],
    tokenizer: TokenizerLike,
    feature: str,
    max_length: int = 512,
    overflow: bool = True,
    packed: bool = False,
    packing_strategy: str = "greedy",
    shuffle_output: bool = False,
    seed: int | None = 42,
    stride: int = 0,
    min_len: int = 1,
    max_len: int | None = None,
    add_bos: bool = True,
    add_eos: bool = True,
    truncate_at: str | None = None,
    tokenizer_engine: TokenizerEngine = "auto",
) -> dict[str, list[list[int]]]:
    """Rows of a batch of texts, as ``input_ids`` and ``document_starts``.

    For `datasets.map(batched=True, remove_columns=...)`. Packing sees one map batch at a time:
    `quire.pack_dataset` packs a whole dataset. Drops cause one warning per reason and process, and
    one for the first batch that yields no row; `quire.blocks.pack_texts` returns the ledger.
    Options are explained at `BlockOptions`.

    >>> rows = block_tokenize_fn({"text": ["hello"]}, "byte", "text", max_length=4, add_bos=False)
    >>> rows["input_ids"]
    [[107, 104, 111, 111], [114, 2]]
    """
    if not hasattr(features, "keys"):  # a pandas batch has them, too
        raise InvalidDocument(
            f"features is {type(features).__name__} but a mapping from names to lists of texts is "
            "needed; use map(batched=True)"
        )
    if feature not in features:
        raise unknown_name("feature", feature, features)
    options = BlockOptions(
        max_length=max_length,
        overflow=overflow,
        packed=packed,
        packing_strategy=packing_strategy,
        shuffle_output=shuffle_output,
        seed=seed,
        stride=stride,
        min_len=min_len,
        max_len=max_len,
        add_bos=add_bos,
        add_eos=add_eos,
        truncate_at=truncate_at,
        tokenizer_engine=tokenizer_engine,
    )
    rows = pack_texts(features[feature], tokenizer, options)
    _warn_of_drops(rows)
    return {"input_ids": rows.input_ids, "document_starts": rows.document_starts}


def _checked_texts(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise InvalidDocument(
            f"texts is one {type(texts).__name__} but a list of strings is needed; "
            "use map(batched=True)"
        )
    texts = list(texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidDocument(
                f"document {number} is {type(text).__name__} but must be a string; "
                "filter or fill such rows before packing"
            )
    return texts


def _warn_of_drops(rows: PackedRows) -> None:
    """Warn once per process and reason for drops, and once for a batch that yields no row."""
    documents, tokens = rows.ledger.documents.dropped, rows.ledger.tokens.dropped
    dropped = {reason for reason in {*documents, *tokens} if documents[reason] or tokens[reason]}
    leaves_nothing = bool(dropped) and not rows.input_ids
    news = (dropped | ({_NO_ROW} if leaves_nothing else set())) - _warned
    if not news:
        return
    _warned.update(news)
    what = ", ".join(
        f"{reason}: {counted(documents[reason], 'document')}, {counted(tokens[reason], 'token')}"
        for reason in sorted(dropped if _NO_ROW in news else news)
    )
    warnings.warn(
        f"block_tokenize_fn {'returned no row:' if _NO_ROW in news else 'dropped'} {what} in this "
        "batch; further drops for the same reason cause no warning. quire.blocks.pack_texts "
        "returns the ledger of every batch",
        stacklevel=3,
    )


_NO_ROW = "no row"
_warned: set[str] = set()
