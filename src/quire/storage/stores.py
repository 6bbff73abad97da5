"""Object stores: S3 and Google through pyarrow, all others through fsspec; and their errors."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

from quire.errors import (
    InvalidOption,
    MissingDependency,
    QuireError,
    StorageError,
    unknown_name,
)
from quire.storage.hub import hub_away, is_offline, is_reachable
from quire.storage.location import Location

_S3_OPTIONS = ("anonymous", "endpoint_override", "region", "scheme")
_GS_OPTIONS = ("anonymous", "endpoint_override", "scheme")
_ATTEMPTS = 5
"""Attempts at a request, with growing pauses: an error is raised after some seconds."""
_CONNECT_SECONDS, _REQUEST_SECONDS, _GOOGLE_SECONDS = 5, 30, 10
NATIVE = ("s3", "gs")
"""Schemes that pyarrow supports itself."""
_WHOLE = frozenset({"s3", "gs", "hf", "az", "abfs", "abfss", "oss", "oci", "cos"})
"""Object stores: an upload becomes visible as a whole, and a rename would be a second copy."""
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the machine's role",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or gcloud auth application-default login",
    "hf": "HF_TOKEN or hf auth login",
}
_ERROR_PATTERNS = {
    "bucket": r"no_?such_?bucket|bucket does not exist|bucket '[^']*' not found",
    "credentials": r"invalid_?access_?key|signature_?does_?not_?match|expired|credential"
    r"|unauthori[sz]ed|unauthenticated|\b401\b",
    "permission": r"access.?denied|forbidden|permission|\b403\b",
    "network": r"network|connect|resolve|resolution|time.?out|timed out|unavailable|curlcode"
    r"|service not known",
}
_STORE_NAMES = ("aws error", "google::cloud", "gcs returned")


def puts_whole(location: Location) -> bool:
    """Whether an interrupted upload leaves nothing under the object's name."""
    return location.scheme in _WHOLE


def file_system(location: Location) -> Any:  # noqa: ANN401 - pyarrow has no types
    """The `pyarrow.fs.FileSystem` of a store; one per process, also after a fork."""
    return _opened(location, os.getpid())


def path_in(location: Location, inside: str) -> str:
    """A path below the store's root as its file system knows it."""
    return f"{_root(location)}/{inside}".rstrip("/")


@lru_cache(maxsize=64)
def _root(location: Location) -> str:
    if location.scheme in NATIVE:
        return location.root
    return fsspec_system(location)[1].rstrip("/")


@lru_cache(maxsize=64)
def _opened(location: Location, process: int) -> Any:  # noqa: ANN401
    if location.scheme == "s3":
        return _s3(location)
    if location.scheme == "gs":
        return _google(location)
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    return PyFileSystem(FSSpecHandler(fsspec_system(location)[0]))


def _s3(location: Location) -> Any:  # noqa: ANN401
    from pyarrow import __version__, fs

    options = _checked_options(location, _S3_OPTIONS)
    endpoint = options.get("endpoint_override") or _environment(
        "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"
    )
    scheme, _, host = endpoint.rpartition("://")
    newer = {"allow_delayed_open": True} if int(__version__.partition(".")[0]) >= 20 else {}
    return fs.S3FileSystem(
        access_key=location.user if location.secret is not None else None,
        secret_key=location.secret,
        session_token=None,
        anonymous=_flag(location, options.get("anonymous", "false")),
        region=options.get("region") or _region(location, endpoint),
        scheme=options.get("scheme") or scheme or None,
        endpoint_override=host.rstrip("/") or None,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **newer,  # small objects in one request instead of three
    )


def _region(location: Location, endpoint: str) -> str | None:
    """The region of a bucket; a custom endpoint has none."""
    from pyarrow import fs

    if known := _environment("AWS_REGION", "AWS_DEFAULT_REGION"):
        return known
    return "us-east-1" if endpoint else str(fs.resolve_s3_region(location.root))


def _google(location: Location) -> Any:  # noqa: ANN401
    from pyarrow import fs

    options = _checked_options(location, _GS_OPTIONS)
    return fs.GcsFileSystem(
        anonymous=_flag(location, options.get("anonymous", "false")),
        scheme=options.get("scheme"),
        endpoint_override=options.get("endpoint_override"),
        # By default, requests to a missing bucket are retried for a quarter of an hour.
        retry_time_limit=timedelta(seconds=_GOOGLE_SECONDS),
    )


def fsspec_system(location: Location) -> tuple[Any, str]:
    """The file system that fsspec has for a scheme, and the path of the store's root in it."""
    if location.options:
        raise InvalidOption(
            f"{location.shown}: the URI has the option {location.options[0][0]!r}, but "
            f"{location.scheme}:// URIs take no options\n"
            "set it in the environment or in fsspec's configuration"
        )
    if location.scheme == "hf" and not is_offline() and not is_reachable():
        raise hub_away(location.shown)  # its client would wait for minutes
    try:
        import fsspec
    except ModuleNotFoundError:
        raise MissingDependency(
            f"{location.shown}: {location.scheme}:// needs fsspec, which is not installed\n"
            "run: pip install fsspec and the package for that store"
        ) from None
    try:
        system, root = fsspec.core.url_to_fs(_url(location))
    except ImportError as error:
        raise MissingDependency(
            f"{location.shown}: {location.scheme}:// needs a package that is not installed\n"
            f"{location.scrubbed(str(error))}"
        ) from None
    except ValueError as error:
        if "rotocol not known" not in str(error):
            raise
        raise InvalidOption(
            f"{location.shown}: {location.scheme}:// is not a scheme that pyarrow or fsspec knows\n"
            "write s3://, gs://, hf://, a scheme of an installed fsspec package, or a local path"
        ) from None
    return system, str(root)


def _url(location: Location) -> str:
    user = "" if location.user is None else location.user
    secret = "" if location.secret is None else f":{location.secret}"
    return f"{location.scheme}://{user}{secret}{'@' if user else ''}{location.root}"


def _checked_options(location: Location, names: tuple[str, ...]) -> Mapping[str, str]:
    for name, _ in location.options:
        if name not in names:
            raise unknown_name(f"option in the URI of {location.shown}", name, names)
    return dict(location.options)


def _flag(location: Location, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InvalidOption(f"{location.shown}: anonymous is {value!r} but must be true or false")
    return value.lower() == "true"


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


@contextmanager
def store_errors(location: Location, shown: str) -> Iterator[None]:
    """Turn everything a store raises into a `StorageError`, except for missing files."""
    try:
        yield
    except QuireError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such file or folder", shown) from None
    except Exception as error:
        # The cause may hold the whole URI, so it is dropped if the URI has a secret.
        raise storage_error(location, shown, error) from (None if location.secret else error)


def storage_error(location: Location, shown: str, error: BaseException) -> StorageError:
    """A store's error as two lines: what happened where, and what to do."""
    detail = location.scrubbed(" ".join(str(error).split())) or type(error).__name__
    keys = _CREDENTIALS.get(location.scheme, "the credentials of that store")
    problem, remedy = {
        "bucket": (f"there is no bucket {location.root!r}", "create it, or correct its name"),
        "credentials": (f"the store rejects these credentials ({detail})", f"check {keys}"),
        "permission": (
            f"the store denies access ({detail})",
            f"check {keys}, and that its policy allows list, read, write and delete",
        ),
        "network": (
            f"the store cannot be reached ({detail})",
            "check the network and the endpoint, then run the same command again",
        ),
        "other": (
            f"the store failed ({detail})",
            "run the same command again; if it still fails, check the store",
        ),
    }[_error_kind(error, detail)]
    return StorageError(f"{shown}: {problem}\n{remedy}")


def is_store_failure(error: BaseException) -> bool:
    """Whether a store failed, as opposed to a damaged file in it."""
    text = str(error).lower()
    return isinstance(error, ConnectionError | PermissionError) or any(
        name in text for name in _STORE_NAMES
    )


def _error_kind(error: BaseException, detail: str) -> str:
    if isinstance(error, PermissionError):
        return "permission"
    if isinstance(error, ConnectionError | TimeoutError):
        return "network"
    for kind, pattern in _ERROR_PATTERNS.items():
        if re.search(pattern, detail, re.IGNORECASE):
            return kind
    return "other"
