"""States of earlier versions in the form of this one; they go on to the batches of their time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def migrated(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a state of version 1 as version 2 has it; its reader refuses what is no state.

    Version 2 tells how few tokens the last fragment of a document may have. In version 1 that was
    always one, which could be EOS.
    """
    streams = body["streams"]
    if not isinstance(streams, Mapping):
        return dict(body)
    return {**body, "streams": {name: _lane(lane) for name, lane in streams.items()}}


def _lane(lane: object) -> object:
    if not isinstance(lane, Mapping) or not isinstance(lane.get("packer"), Mapping):
        return lane
    packer = lane["packer"]
    if "continues" in packer:  # the sequential packer cuts where a window is full
        return lane
    return {**lane, "packer": {**packer, "tail": 1}}
