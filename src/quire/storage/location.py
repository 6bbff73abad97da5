"""A URI in parts: which of them may be shown, and which are secret."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote

from quire.errors import InvalidOption

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FLATTENED = re.compile(r"(s3|gs|gcs|hf|az|abfs|memory|https?):/(?!/)")
_QUERY = re.compile(r"\?((?:[A-Za-z0-9_.-]+=[^&?]*)(?:&[A-Za-z0-9_.-]+=[^&?]*)*)$")
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d+)?")
_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """A store and its credentials; hashable, so a process opens it once."""

    scheme: str
    root: str
    """The bucket, container or host: the part before the first slash."""
    user: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The part after the question mark."""

    @property
    def shown(self) -> str:
        """The start of every URI of this store, without secrets.

        >>> parse("s3://key:word@bucket/corpus?region=eu-west-1")[0].shown
        's3://bucket'
        """
        named = f"{self.user}@" if self.user and self.secret is None else ""
        return f"{self.scheme}://{named}{self.root}"

    def scrubbed(self, text: str) -> str:
        """The text with the user, the secret and option values replaced by ``***``."""
        values = [self.secret, self.user, *(value for _, value in self.options)]
        for value in sorted(filter(None, values), key=len, reverse=True):
            if len(value) > 3:  # a shorter one is not a secret, and may be part of ordinary words
                text = text.replace(value, "***")
        return text


def is_uri(named: object) -> bool:
    """Whether the argument is a string that starts with a scheme.

    >>> is_uri("s3://bucket/a"), is_uri("corpus/a"), is_uri("C://a")
    (True, False, False)
    """
    return isinstance(named, str) and _URI.match(named) is not None


def require_unflattened(named: object) -> None:
    """Raise for a URI that was made a `Path`, which removes one of its two slashes."""
    if isinstance(named, os.PathLike) and _FLATTENED.match(os.fspath(named)):
        location, path = parse(os.fspath(named).replace(":/", "://", 1))  # without its secret
        raise InvalidOption(
            f"{location.shown}/{path} was a URI before pathlib removed one of its slashes\n"
            "give URIs as strings, not as Path"
        )


def parse(uri: str) -> tuple[Location, str]:
    """The store of a URI, and the path in it without leading and trailing slashes.

    A question mark starts options only if ``name=value`` follows, so globs may contain one.

    >>> location, path = parse("s3://bucket/part-?.jsonl?region=eu-west-1")
    >>> location.root, path, location.options
    ('bucket', 'part-?.jsonl', (('region', 'eu-west-1'),))
    """
    scheme, _, rest = uri.partition("://")
    query = _QUERY.search(rest)
    if query:
        rest = rest[: query.start()]
    options = tuple(parse_qsl(query[1], keep_blank_values=True)) if query else ()
    authority, _, path = rest.partition("/")
    entry, at, root = authority.rpartition("@")
    user, colon, secret = entry.partition(":")
    location = Location(
        scheme=_SCHEMES.get(scheme.lower(), scheme.lower()),
        root=root,
        user=unquote(user) if at else None,
        secret=unquote(secret) if colon else None,
        options=options,
    )
    _require_whole(location, path)
    return location, path.strip("/")


def _require_whole(location: Location, path: str) -> None:
    is_bucket = location.scheme in ("s3", "gs")
    if ":" in location.root and (is_bucket or not _HOST.fullmatch(location.root)):
        # Most likely a secret key with a slash in it, so none of it is repeated.
        raise InvalidOption(
            f"a {location.scheme}:// URI has a colon in the name of its "
            f"{'bucket' if is_bucket else 'host'}\n"
            "write '/' and '+' in a secret key as %2F and %2B, or better: set keys in the "
            "environment"
        )
    if not location.root and location.scheme != "memory":
        raise InvalidOption(
            f"{location.scheme}:// names no bucket or host\nwrite {location.scheme}://BUCKET/FOLDER"
        )
    if "::" in path or any(part in (".", "..") for part in path.split("/")):
        raise InvalidOption(
            f"{location.shown}/… has '.', '..' or '::' in its path, which no store resolves\n"
            "write the path out"
        )
