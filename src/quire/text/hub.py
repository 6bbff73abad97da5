"""Tokenizers and datasets that are named as on the Hugging Face hub, such as ``Qwen/Qwen3-8B``."""

from __future__ import annotations

import os
import re
import socket
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from quire.errors import SourceError, missing_dependency

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILES = ("tokenizer*", "special_tokens_map.json", "chat_template*", "vocab*", "merges.txt")
_PATIENCE = 4.0
"""Seconds to wait for a connection, with the look-up of its name; clients wait ten times longer."""


def is_hub_name(named: object) -> bool:
    """Whether this is the name of a repository: an owner and a name, and no path on this machine.

    >>> is_hub_name("Qwen/Qwen3-8B"), is_hub_name("byte"), is_hub_name("here/tokenizer.json")
    (True, False, False)
    """
    if not isinstance(named, str) or _NAME.fullmatch(named) is None or named.endswith(".json"):
        return False
    path = Path(named)
    return not path.exists() and not path.parent.exists()


def local_tokenizer(named: Any) -> Any:  # noqa: ANN401 - any tokenizer
    """The folder of a tokenizer that is named as on the hub; anything else as it is."""
    return _downloaded(named) if is_hub_name(named) else named


@lru_cache(maxsize=16)
def _downloaded(name: str) -> str:
    """The folder of the tokenizer's files: those of the hub, or kept from before if it is away."""
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise missing_dependency("huggingface_hub", f"the tokenizer {name!r}", "hf") from None
    here_only = _is_offline() or not _is_reachable()
    try:
        return str(
            snapshot_download(
                name, allow_patterns=[*_FILES], endpoint=endpoint(), local_files_only=here_only
            )
        )
    except Exception as error:  # of the client, which has many
        if here_only:
            raise _away(f"the tokenizer {name!r} is not on this machine") from error
        reason = str(error).partition("\n")[0]
        raise SourceError(
            f"the tokenizer {name!r} cannot be fetched from {endpoint()}: {reason}; check its "
            "name and your login, or give the path of a folder"
        ) from error


def endpoint() -> str:
    """The hub's address."""
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def require_hub(name: str, option: str) -> None:
    """Raise within seconds if a dataset of this name would be read from a hub that is away.

    In the hub's offline mode `datasets` itself decides at once, by what it has in its cache.
    """
    if is_hub_name(name) and not _is_offline() and not _is_reachable():
        raise _away(f"{option} is {name!r}, a dataset of the hub")


def _away(what: str) -> SourceError:
    return SourceError(
        f"{what}, and {endpoint()} cannot be reached; connect to the network, set HF_ENDPOINT to a "
        "mirror, or give a path on this machine"
    )


def _is_offline() -> bool:
    """Whether the hub's client was told not to use the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")


def _is_reachable() -> bool:
    """Whether the hub, or the proxy before it, accepts a connection soon."""
    address = urlsplit(endpoint())
    proxy = None if proxy_bypass(address.hostname or "") else getproxies().get(address.scheme)
    asked = urlsplit(proxy) if proxy else address
    port = asked.port or (443 if asked.scheme == "https" else 80)
    answered: list[bool] = []

    def connect() -> None:
        try:
            socket.create_connection((asked.hostname or "", port), timeout=_PATIENCE).close()
            answered.append(True)
        except OSError:
            answered.append(False)

    # A host name may take half a minute to be found missing, which no timeout of a socket covers.
    asking = threading.Thread(target=connect, daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    return answered == [True]
