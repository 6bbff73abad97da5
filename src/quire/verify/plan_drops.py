"""Why a plan of an index leaves documents out, derived from the documents themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from quire.storage import AnyPath
from quire.verify.drops import Drops, shard_drops
from quire.verify.files import checked
from quire.verify.recount import Ints, list_column


def plan_drop_problems(
    folder: AnyPath,
    manifest: Mapping[str, Any],
    entry: Mapping[str, Any],
    fragments: tuple[Ints, Ints, Ints],
    lengths: Ints,
) -> Iterator[str]:
    """What the plan leaves out for no reason, or counts for another one.

    Fragments are documents, starts and stops. Shards are read again only where there are labels.
    """
    opening = int(manifest["documents"]["opening"] is not None)
    options = {**manifest["options"], **entry["options"], "max_len": None}
    drops = Drops(
        options,
        prefix=opening,
        has_eos=False,
        rows=True,
        ends_with_eos=bool(manifest["documents"]["end_with_eos"]),
    )
    incomplete = _incomplete(fragments, lengths)
    order = np.lexsort((fragments[1], fragments[0]))
    documents, starts, stops = (values[order] for values in fragments)
    for document, labels in _labels(folder, manifest, incomplete, lengths):
        first, last = np.searchsorted(documents, [document, document + 1]).tolist()
        found = list(zip(starts[first:last].tolist(), stops[first:last].tolist(), strict=True))
        missing = drops.judge(int(lengths[document]), found, labels)
        if missing is not None:
            start, stop = missing
            yield (
                f"tokens {start} to {stop} of document {document} are in no row, for no reason "
                "that the options give"
            )
    yield from drops.problems(_of_plan(manifest, entry))


def _incomplete(fragments: tuple[Ints, Ints, Ints], lengths: Ints) -> Ints:
    """The documents of which a token is in no fragment."""
    documents, starts, stops = fragments
    order = np.lexsort((starts, documents))
    documents, starts, stops = documents[order], starts[order], stops[order]
    first = np.diff(documents, prepend=-1) > 0
    reached = np.where(first, 0, np.append(0, stops[:-1])[: len(stops)])
    new = np.maximum(0, stops - np.maximum(starts, reached))
    covered = np.bincount(documents, weights=new, minlength=len(lengths))
    return np.flatnonzero(covered < lengths)


def _labels(
    folder: AnyPath, manifest: Mapping[str, Any], wanted: Ints, lengths: Ints
) -> Iterator[tuple[int, npt.NDArray[Any] | None]]:
    """Each of the wanted documents with its labels, if there are any."""
    if not manifest["documents"]["has_labels"]:
        yield from ((document, None) for document in wanted.tolist())
        return
    first = 0
    for shard in manifest["shards"]:
        stop = first + int(shard["documents"])
        mine = wanted[(first <= wanted) & (wanted < stop)]
        if len(mine):
            with checked(folder, shard) as path:
                pair = list_column(pq.read_table(path, columns=["labels"])["labels"])
            values = np.zeros(0) if pair is None else pair[0]
            ends = np.cumsum(lengths[first:stop])
            for document in mine.tolist():
                end = int(ends[document - first])
                yield document, values[end - int(lengths[document]) : end]
        first = stop


def _of_plan(manifest: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """What the plan's ledger counts as dropped beside what the shards count."""
    before = shard_drops(manifest)
    return {
        what: {
            reason: count - before[what][reason]
            for reason, count in entry["ledger"][what]["dropped"].items()
        }
        for what in before
    }
