"""What stores complain of, in two lines: what happened where, and what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from quire.errors import QuireError, StorageError
from quire.storage.location import Location

_ROLES = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the machine's role",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS or gcloud auth application-default login",
    "hf": "HF_TOKEN or hf auth login",
}
_SIGNS = {
    "bucket": r"no_?such_?bucket|bucket does not exist|bucket '[^']*' not found",
    "credentials": r"invalid_?access_?key|signature_?does_?not_?match|expired|credential"
    r"|unauthori[sz]ed|unauthenticated|\b401\b",
    "permission": r"access.?denied|forbidden|permission|\b403\b",
    "network": r"network|connect|resolve|resolution|time.?out|timed out|unavailable|curlcode"
    r"|service not known",
}
_STORES = ("aws error", "google::cloud", "gcs returned")


@contextmanager
def told(location: Location, shown: str) -> Iterator[None]:
    """Whatever a store raises as a `StorageError`, save for what is not there."""
    try:
        yield
    except QuireError:
        raise
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No such file or folder", shown) from None
    except Exception as error:
        # The cause may hold the whole URI, so where a secret is in it, it goes no further.
        raise storage_error(location, shown, error) from (None if location.secret else error)


def storage_error(location: Location, shown: str, error: BaseException) -> StorageError:
    """The error of a store in words."""
    detail = location.scrubbed(" ".join(str(error).split())) or type(error).__name__
    kind = _kind(error, detail)
    keys = _ROLES.get(location.scheme, "the credentials of that store")
    said = {
        "bucket": f"there is no bucket {location.root!r}",
        "credentials": f"the store does not accept these credentials ({detail})",
        "permission": f"the store refuses access ({detail})",
        "network": f"the store cannot be reached ({detail})",
        "other": f"the store failed ({detail})",
    }
    remedy = {
        "bucket": "create it, or mend its name",
        "credentials": f"check {keys}",
        "permission": f"check {keys}, and that its policy lets it list, read, write and delete",
        "network": "check the network and the endpoint, then run the same again",
        "other": "run the same again; if it stays, look at the store",
    }
    return StorageError(f"{shown}: {said[kind]}\n{remedy[kind]}")


def is_of_store(error: BaseException) -> bool:
    """Whether a store failed, rather than that a file in it is damaged."""
    text = str(error).lower()
    return isinstance(error, ConnectionError | PermissionError) or any(
        name in text for name in _STORES
    )


def _kind(error: BaseException, detail: str) -> str:
    if isinstance(error, PermissionError):
        return "permission"
    if isinstance(error, ConnectionError | TimeoutError):
        return "network"
    signs = _SIGNS.items()
    return next((kind for kind, sign in signs if re.search(sign, detail, re.IGNORECASE)), "other")
