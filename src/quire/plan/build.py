"""From fragments in rows to the plan: drop short rows, shuffle the rest, count everything."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.ledger import Ledger, Tally, TokenTally
from quire.plan.fragments import Fragments
from quire.plan.lengths import BoolArray, IntArray
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan, fingerprint_of

FATES = ("emitted", "row_too_short", "unsupervised", "group_too_long")
"""What can happen to a fragment, best first."""


def build_plan(
    lengths: IntArray,
    in_rows: Fragments,
    offsets: IntArray,
    options: PlanOptions,
    left_out: tuple[Fragments, str] | None = None,
) -> Plan:
    """The plan of these rows; ``left_out`` holds the fragments that are in no row, and why."""
    kept = _long_enough(in_rows, offsets, options)
    fragments, fate = _fates(in_rows, offsets, kept, left_out)
    ledger = count_fragments(lengths, fragments, fate, int(np.count_nonzero(kept)), options)
    fragments, offsets = _select_rows(in_rows, offsets, kept, options)
    return Plan(
        row_offsets=offsets,
        documents=fragments.documents,
        starts=fragments.starts,
        stops=fragments.stops,
        options=options,
        ledger=ledger,
        fingerprint=fingerprint_of(lengths),
    )


def permutation(count: int, seed: int | None) -> IntArray:
    """A random order of ``count`` items that depends only on the seed.

    NumPy guarantees that the raw bits of PCG64 never change, but not the order that
    `Generator.permutation` returns. Sorting raw bits gives the same order under any NumPy version.

    >>> permutation(5, seed=0)
    array([3, 2, 1, 0, 4])
    """
    return np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")


def spans(firsts: IntArray, counts: IntArray) -> IntArray:
    """The numbers first, first + 1, ... of every span, one span after another.

    >>> spans(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    begins = np.cumsum(counts) - counts
    numbers: IntArray = np.arange(counts.sum()) + np.repeat(firsts - begins, counts)
    return numbers


def count_fragments(
    lengths: IntArray,
    fragments: Fragments,
    fate: npt.NDArray[np.int8] | None,
    num_rows: int,
    options: PlanOptions,
) -> Ledger:
    """The ledger: what happened to every document and token.

    ``fate`` holds an index into `FATES` for each fragment; None means that all were emitted.
    """
    documents, tokens = _count_by_fate(fragments, fate, len(lengths), options.stride)
    num_documents, num_eos = int(np.count_nonzero(lengths)), 0
    if options.ends_with_eos:
        ends = _ends_by_fate(lengths, fragments, fate)
        tokens = {name: count - ends[name] for name, count in tokens.items()}
        num_eos = ends["emitted"]
    emitted = fragments.lengths if fate is None else fragments.lengths[fate == 0]
    in_rows, num_bos = _sum(emitted), options.prefix * len(emitted)
    long_documents, long_tokens = _overlong_losses(lengths, options)
    return Ledger(
        documents=Tally(
            input=len(lengths),
            emitted=documents.pop("emitted"),
            dropped={
                "empty": len(lengths) - num_documents,
                "too_long": long_documents,
                **documents,
            },
        ),
        tokens=TokenTally(
            input=_sum(lengths) - options.ends_with_eos * num_documents,
            emitted=(new := tokens.pop("emitted")),
            dropped={
                "too_long" if options.overlong == "drop" else "truncated": long_tokens,
                **tokens,
            },
            overlap=in_rows - num_eos - new,
            special=num_bos + num_eos,
            padding=num_rows * options.max_length - in_rows - num_bos,
        ),
    ).check()


def _count_by_fate(
    fragments: Fragments, fate: npt.NDArray[np.int8] | None, num_documents: int, stride: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Documents and tokens by the best fate of any fragment that holds them."""
    seen = np.zeros(num_documents, dtype=bool)
    documents: dict[str, int] = {}
    tokens: dict[str, int] = {}
    for code, name in enumerate(FATES if fate is not None else FATES[:1]):
        which = slice(None) if fate is None else np.flatnonzero(fate == code)
        before = int(np.count_nonzero(seen))
        seen[fragments.documents[which]] = True
        documents[name] = int(np.count_nonzero(seen)) - before
        new_tokens = _sum(fragments.lengths[which])
        if stride:
            # A repeated token is emitted even if the fragment before it is dropped.
            so_far = fragments if fate is None else fragments.take(np.flatnonzero(fate <= code))
            new_tokens = _sum(so_far.lengths) - _sum(so_far.overlaps(stride)) - sum(tokens.values())
        tokens[name] = new_tokens
    return documents, tokens


def _ends_by_fate(
    lengths: IntArray, fragments: Fragments, fate: npt.NDArray[np.int8] | None
) -> dict[str, int]:
    """How many fragments of each fate hold the last token of their document."""
    is_end = fragments.stops == lengths[fragments.documents]
    if fate is None:
        return {"emitted": int(np.count_nonzero(is_end))}
    counts = np.bincount(fate[is_end], minlength=len(FATES))
    return dict(zip(FATES, counts.tolist(), strict=True))


def _sum(values: IntArray) -> int:
    return int(values.sum(dtype=np.int64))


def _overlong_losses(lengths: IntArray, options: PlanOptions) -> tuple[int, int]:
    """The documents that the overlong policy dropped, and the tokens it dropped or truncated.

    An added EOS that is lost with them is not counted.
    """
    overlong = lengths[lengths > options.max_fragment]
    tokens = _sum(overlong)
    if options.overlong != "truncate_left":
        tokens -= options.ends_with_eos * len(overlong)
    if options.overlong == "drop":
        return len(overlong), tokens
    if options.overlong in ("truncate", "truncate_left"):
        return 0, tokens - len(overlong) * options.max_fragment
    return 0, 0


def _fates(
    in_rows: Fragments,
    offsets: IntArray,
    kept: BoolArray,
    left_out: tuple[Fragments, str] | None,
) -> tuple[Fragments, npt.NDArray[np.int8] | None]:
    """All fragments with their indices into `FATES`; None if every one was emitted."""
    others, reason = left_out or (in_rows.take(np.zeros(0, dtype=np.int64)), "emitted")
    if kept.all() and not len(others):
        return in_rows, None
    short: npt.NDArray[np.int8] = np.repeat(~kept, np.diff(offsets)).view(np.int8)
    code = np.full(len(others), FATES.index(reason), dtype=np.int8)
    return in_rows.joined(others), np.append(short, code)


def _long_enough(fragments: Fragments, offsets: IntArray, options: PlanOptions) -> BoolArray:
    if options.min_length == 1:
        return np.ones(len(offsets) - 1, dtype=bool)
    tokens = fragments.lengths + options.prefix
    return np.add.reduceat(tokens, offsets[:-1], dtype=np.int64) >= options.min_length


def _select_rows(
    fragments: Fragments, offsets: IntArray, kept: BoolArray, options: PlanOptions
) -> tuple[Fragments, IntArray]:
    """The rows to keep, in random order if the options ask for it."""
    if kept.all() and not options.shuffle:
        return fragments, offsets
    rows = np.flatnonzero(kept)
    if options.shuffle:
        rows = rows[permutation(len(rows), options.seed)]
    counts = np.diff(offsets)[rows]
    new_offsets = np.append(0, np.cumsum(counts))
    return fragments.take(spans(offsets[:-1][rows], counts)), new_offsets
