"""The format version of everything that quire saves, and the seal of saved states.

A state is JSON with a format, a version and a checksum, all of which are checked when it is read.
Manifests and plan files store their version elsewhere, and read it with the same two functions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from quire.errors import InvalidState, QuireError

FORMAT_VERSION = 3
"""The version of every manifest, state, commit, plan file and cache that quire writes.

Raise it when any of them changes after a release, and give the kinds that changed a migration from
the version before; a kind without one reads the earlier versions as they are. 0.1.0 wrote states of
version 2, and manifests and plan files of version 1. Caches of other versions are rebuilt.
"""
Content: TypeAlias = dict[str, Any]
Migrations: TypeAlias = Mapping[int, Callable[[Content], Content]]
"""By version: a function that turns content of that version into the next one."""


def read_version(what: str, version: object, error: type[QuireError] = InvalidState) -> int:
    """The version of something saved, if this quire can read it.

    >>> read_version("the state", 4)
    Traceback (most recent call last):
    quire.errors.InvalidState: the state has version 4 but this quire reads up to 3; upgrade quire
    """
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise error(f"{what} has version {version!r} but a version is an integer >= 1")
    if version > FORMAT_VERSION:
        raise error(
            f"{what} has version {version} but this quire reads up to {FORMAT_VERSION}; "
            "upgrade quire"
        )
    return version


def migrated(content: Content, version: int, migrations: Migrations) -> Content:
    """The content of an earlier version in the form of the current one."""
    for number in range(version, FORMAT_VERSION):
        if number in migrations:
            content = migrations[number](content)
    return content


def renamed(names: Mapping[str, str], content: Mapping[str, Any]) -> Content:
    """The content with some of its keys under other names, in the same order.

    >>> renamed({"capacity": "max_length"}, {"capacity": 8, "seed": 0})
    {'max_length': 8, 'seed': 0}
    """
    return {names.get(name, name): value for name, value in content.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Seal:
    """The format, version and checksum that identify states of one kind.

    >>> seal = Seal(format="quire.example", owner="an example")
    >>> seal.opened(seal.sealed({"step": 3}))["step"]
    3
    >>> seal.opened(seal.sealed({"step": 3}) | {"step": 4})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    quire.errors.InvalidState: ... it was damaged or changed; use an earlier state
    """

    format: str
    owner: str
    """What has these states, for error messages."""
    migrations: Migrations = field(default_factory=dict)
    first: int = 1
    """The first version with a format and a checksum; earlier ones may lack both."""

    def sealed(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body with format, version and checksum; a format and version in the body are kept."""
        state = {"format": self.format, "version": FORMAT_VERSION, **body}
        return {**state, "checksum": checksum(state)}

    def unsealed(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The body without its seal."""
        return {name: state[name] for name in state if name not in _SEAL}

    def opened(self, state: object) -> dict[str, Any]:
        """The state in its current form, if it is undamaged and not from a newer quire."""
        if not isinstance(state, Mapping):
            raise InvalidState(
                f"this is not a state of {self.owner}: a state is a dict, "
                f"not a {type(state).__name__}"
            )
        if state.get("format") != self.format and not self._may_lack_format(state):
            raise InvalidState(
                f"this is not a state of {self.owner}: its format is {state.get('format')!r}, not "
                f"{self.format!r}"
            )
        version = read_version("the state", state.get("version"))
        if version >= self.first or "checksum" in state:
            require_checksum(state)
        if version == FORMAT_VERSION:
            return dict(state)
        return self.sealed(migrated(self.unsealed(state), version, self.migrations))

    def _may_lack_format(self, state: Mapping[str, Any]) -> bool:
        version = state.get("version")
        return "format" not in state and type(version) is int and version < self.first


_SEAL = ("format", "version", "checksum")


def checksum(plain: Mapping[str, Any]) -> str:
    """A digest of the content."""
    try:
        return hashlib.sha256(canonical(plain).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidState(f"the state is not JSON: {error}") from error


def canonical(plain: Mapping[str, Any]) -> str:
    """The canonical JSON of some content."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def require_checksum(state: Mapping[str, Any]) -> None:
    """Raise unless the checksum matches the content."""
    actual = checksum({key: value for key, value in state.items() if key != "checksum"})
    if state.get("checksum") != actual:
        raise InvalidState(
            f"the state's checksum is {state.get('checksum')!r} but its content has {actual!r}: it "
            "was damaged or changed; use an earlier state"
        )


def require_same(saved: object, current: Mapping[str, Any], remedy: str) -> None:
    """Raise, naming every difference, unless a state was saved under the current terms.

    >>> require_same({"seed": 1}, {"seed": 2}, "restore it")
    Traceback (most recent call last):
    quire.errors.InvalidState: seed is 1 in the state and 2 here: restore it
    """
    if not isinstance(saved, Mapping):
        raise InvalidState(f"the state's terms are {type(saved).__name__} but must be a dict")
    differing = [
        f"{name} is {saved.get(name)!r} in the state and {current.get(name)!r} here"
        for name in sorted({*saved, *current})
        if saved.get(name) != current.get(name)
    ]
    if differing:
        raise InvalidState(f"{'; '.join(differing)}: {remedy}")
