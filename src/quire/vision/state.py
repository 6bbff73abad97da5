"""Saved states of packed datasets: JSON, versioned, with a checksum, and validated when read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from quire.errors import InvalidState
from quire.seals import Migrations, Seal, require_same
from quire.vision.workers import Share

State: TypeAlias = dict[str, Any]
_FIELDS = frozenset(
    {"format", "version", "epoch", "terms", "share", "place", "account", "packs", "checksum"}
)


def _add_scope(body: dict[str, Any]) -> dict[str, Any]:
    """A body of version 1 with the fields of version 2: version 1 always packed by the buffer."""
    terms = body.get("terms")
    if not isinstance(terms, Mapping):
        return body
    added = {"packing_scope": "buffer", "seed": None, "plan": None}
    return {**body, "terms": {**terms, **added}}


MIGRATIONS: Migrations = {1: _add_scope}
"""For the states of datasets and for checkpoints of training: both contain the terms."""
SEAL = Seal(format="quire.vision", owner="a packed dataset", migrations=MIGRATIONS)


def opened(state: object) -> State:
    """The state in the form of this version, if it is intact."""
    fields = SEAL.opened(state)
    if set(fields) != _FIELDS:
        raise InvalidState(
            f"the state has the fields {sorted(fields)} but must have {sorted(_FIELDS)}; use a "
            "state as state_dict() returned it"
        )
    return fields


def require_same_terms(saved: object, current: Mapping[str, Any]) -> None:
    """Raise, naming every difference, unless the state was made under the current terms."""
    remedy = "continue with the same dataset, options and ranks, or start the epoch over"
    require_same(saved, current, remedy)


def require_same_share(state: State, share: Share) -> None:
    """Raise unless the state is of the same part of ranks and workers."""
    here = [share.index, share.count]
    if state["share"] != here:
        raise InvalidState(
            f"the state is of part {state['share']} of ranks and workers and this is part {here}; "
            "continue with the same number of them, or count packs and use skip_packs"
        )


def read_count(what: str, value: object, most: int | None = None) -> int:
    """The value, if it is an integer from 0 to ``most``."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    if not is_count or (most is not None and value > most):  # type: ignore[operator]
        limit = "" if most is None else f" and <= {most}"
        raise InvalidState(f"the state's {what} is {value!r} but must be an integer >= 0{limit}")
    return value  # type: ignore[return-value]


def read_flag(what: str, value: object) -> bool:
    """The value, if it is true or false."""
    if not isinstance(value, bool):
        raise InvalidState(f"the state's {what} is {value!r:.60} but must be true or false")
    return value


def read_rows(what: str, rows: object, width: int | None = None) -> list[list[Any]]:
    """The rows, if they are a list of lists, each of this width."""
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise InvalidState(f"the state's {what} must be a list of lists, not {rows!r:.60}")
    for row in rows:
        if width is not None and len(row) != width:
            raise InvalidState(
                f"the state's {what} has a row {row!r:.60} but a row has {width} values"
            )
    return rows
