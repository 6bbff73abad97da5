"""File systems behind URIs: S3 and Google's through pyarrow, all others through fsspec."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from quire.errors import InvalidOption, MissingDependency, unknown_name
from quire.storage.location import Location

_S3_OPTIONS = ("anonymous", "endpoint_override", "region", "scheme")
_GS_OPTIONS = ("anonymous", "endpoint_override", "scheme")
_ATTEMPTS = 5
"""How often a request is tried, with growing pauses: some seconds until an error is one."""
_CONNECT_SECONDS, _REQUEST_SECONDS, _GOOGLE_SECONDS = 5, 30, 10
NATIVE = ("s3", "gs")
"""What pyarrow brings itself."""
_WHOLE = frozenset({"s3", "gs", "hf", "az", "abfs", "abfss", "oss", "oci", "cos"})
"""Object stores: what is put there appears whole, and a rename would be a second copy."""


def puts_whole(location: Location) -> bool:
    """Whether an upload that is broken off leaves nothing behind under the object's name."""
    return location.scheme in _WHOLE


def file_system(location: Location) -> Any:  # noqa: ANN401 - pyarrow has no types
    """The `pyarrow.fs.FileSystem` of a store; one a process, also behind a fork."""
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

    options = _known(location, _S3_OPTIONS)
    endpoint = options.get("endpoint_override") or _environment(
        "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"
    )
    scheme, _, host = endpoint.rpartition("://")
    newer = {"allow_delayed_open": True} if int(__version__.partition(".")[0]) >= 20 else {}
    return fs.S3FileSystem(
        access_key=location.user if location.secret is not None else None,
        secret_key=location.secret,
        session_token=None,
        anonymous=_truth(location, options.get("anonymous", "false")),
        region=options.get("region") or _region(location, endpoint),
        scheme=options.get("scheme") or scheme or None,
        endpoint_override=host.rstrip("/") or None,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        **newer,  # small objects in one request instead of three
    )


def _region(location: Location, endpoint: str) -> str | None:
    """A bucket answers in its own region alone; a store of one's own has none."""
    from pyarrow import fs

    if known := _environment("AWS_REGION", "AWS_DEFAULT_REGION"):
        return known
    return "us-east-1" if endpoint else str(fs.resolve_s3_region(location.root))


def _google(location: Location) -> Any:  # noqa: ANN401
    from pyarrow import fs

    options = _known(location, _GS_OPTIONS)
    return fs.GcsFileSystem(
        anonymous=_truth(location, options.get("anonymous", "false")),
        scheme=options.get("scheme"),
        endpoint_override=options.get("endpoint_override"),
        # Left alone, a missing bucket's host is asked for a quarter of an hour.
        retry_time_limit=timedelta(seconds=_GOOGLE_SECONDS),
    )


def fsspec_system(location: Location) -> tuple[Any, str]:
    """The file system that fsspec has for a scheme, and the path of the store's root in it."""
    if location.options:
        raise InvalidOption(
            f"{location.shown}: behind a question mark stands {location.options[0][0]!r}, but "
            f"{location.scheme}:// takes no options there\n"
            "leave it to the environment, or to the configuration of fsspec"
        )
    try:
        import fsspec
    except ModuleNotFoundError:
        raise MissingDependency(
            f"{location.shown}: {location.scheme}:// needs fsspec, which is not installed\n"
            "run: pip install fsspec, with the package of that store"
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
            f"{location.shown}: {location.scheme}:// is no scheme that pyarrow or fsspec knows\n"
            "write s3://, gs://, hf://, a scheme of an installed fsspec package, or a local path"
        ) from None
    return system, str(root)


def _url(location: Location) -> str:
    user = "" if location.user is None else location.user
    secret = "" if location.secret is None else f":{location.secret}"
    return f"{location.scheme}://{user}{secret}{'@' if user else ''}{location.root}"


def _known(location: Location, names: tuple[str, ...]) -> Mapping[str, str]:
    for name, _ in location.options:
        if name not in names:
            raise unknown_name(f"option behind the question mark of {location.shown}", name, names)
    return dict(location.options)


def _truth(location: Location, said: str) -> bool:
    if said.lower() not in ("true", "false"):
        raise InvalidOption(f"{location.shown}: anonymous is {said!r} but must be true or false")
    return said.lower() == "true"


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
