"""How states of earlier versions become those of today and continue to the same batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire.errors import QuireError
from quire.ledger import Ledger
from quire.seals import Migrations


def _with_tail(body: dict[str, Any]) -> dict[str, Any]:
    """The body of version 1 with what version 2 adds: the shortest end of a document.

    In version 1 its last fragment could be one token, EOS.
    """
    streams = body.get("streams")
    if not isinstance(streams, Mapping):
        return body
    return {**body, "streams": {name: _lane(lane) for name, lane in streams.items()}}


def _lane(lane: object) -> object:
    if not isinstance(lane, Mapping) or not isinstance(lane.get("packer"), Mapping):
        return lane
    packer = lane["packer"]
    if "continues" in packer:  # the sequential packer cuts where a window is full
        return lane
    return {**lane, "packer": {**packer, "tail": 1}}


def _bos_as_special(body: dict[str, Any]) -> dict[str, Any]:
    """The body of version 2 with the ledgers of version 3, which count BOS as special."""
    options, streams = body.get("options"), body.get("streams")
    if not isinstance(options, Mapping) or not isinstance(streams, Mapping):
        return body
    if not options.get("data.tokenizer.add_bos"):
        return body
    return {**body, "streams": {name: _counted_anew(lane) for name, lane in streams.items()}}


def _counted_anew(lane: object) -> object:
    """A lane whose documents had their BOS counted as a token like any other."""
    try:
        ledger = Ledger.from_dict(lane["ledger"])  # type: ignore[index]
        documents, tokens = ledger.documents, ledger.tokens
        opened = documents.emitted + documents.pending + documents.dropped["drop_last"]
        dropped = Counter(tokens.dropped)
        dropped["drop_last"] -= documents.dropped["drop_last"]
        counted = replace(
            tokens,
            input=tokens.input - opened,
            emitted=tokens.emitted - documents.emitted,
            pending=tokens.pending - documents.pending,
            dropped=dropped,
            special=documents.emitted,
        )
    except (QuireError, KeyError, TypeError):  # whoever reads the state says what is wrong
        return lane
    plain = replace(ledger, tokens=counted).to_dict()
    return {**lane, "ledger": plain}  # type: ignore[dict-item]


MIGRATIONS: Migrations = {1: _with_tail, 2: _bos_as_special}
