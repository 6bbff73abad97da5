"""Saved states under a seal: format, version, checksum around plain JSON; opened without trust."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quire.errors import InvalidState


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """What tells states of one kind from others, and from damaged ones.

    >>> seal = Seal(format="quire.example", version=1, owner="an example")
    >>> seal.opened(seal.sealed({"step": 3}))["step"]
    3
    >>> seal.opened(seal.sealed({"step": 3}) | {"step": 4})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    quire.errors.InvalidState: ... it was damaged or changed; use an earlier state
    """

    format: str
    version: int
    """The newest that can be read."""
    owner: str
    """Whose states they are, in words."""

    def sealed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body with format, version and checksum; those that it brings are kept."""
        state = {"format": self.format, "version": self.version, **body}
        return {**state, "checksum": checksum(state)}

    def unsealed(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The body alone."""
        return {name: state[name] for name in state if name not in _SEAL}

    def opened(self, state: object) -> dict[str, Any]:
        """The state with its seal, if it is whole and of no newer version than this."""
        if not isinstance(state, Mapping):
            raise InvalidState(
                f"this is no state of {self.owner}: a state is a dict, not a {type(state).__name__}"
            )
        if state.get("format") != self.format:
            raise InvalidState(
                f"this is no state of {self.owner}: its format is {state.get('format')!r}, not "
                f"{self.format!r}"
            )
        self._require_version(state.get("version"))
        require_checksum(state)
        return dict(state)

    def _require_version(self, version: object) -> None:
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise InvalidState(
                f"the state has version {version!r} but a version is an integer >= 1"
            )
        if version > self.version:
            raise InvalidState(
                f"the state has version {version} but this quire reads versions up to "
                f"{self.version}; upgrade quire"
            )


_SEAL = ("format", "version", "checksum")


def checksum(plain: Mapping[str, Any]) -> str:
    """What tells this content from any other."""
    try:
        return hashlib.sha256(canonical(plain).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidState(f"the state is not JSON: {error}") from error


def canonical(plain: Mapping[str, Any]) -> str:
    """The one JSON text of some content."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def require_checksum(state: Mapping[str, Any]) -> None:
    """Raise unless the state says what it said when its checksum was made."""
    actual = checksum({key: value for key, value in state.items() if key != "checksum"})
    if state.get("checksum") != actual:
        raise InvalidState(
            f"the state's checksum is {state.get('checksum')!r} but its content has {actual!r}: it "
            "was damaged or changed; use an earlier state"
        )
