"""How states of earlier versions become those of today and continue to the same batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


MIGRATIONS: Migrations = {1: _with_tail}
