"""The Hugging Face hub: which names are its own, and whether it can be reached."""

from __future__ import annotations

import os
import re
import socket
import threading
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from quire.errors import SourceError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
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


def hub_dataset(named: object) -> str | None:
    """The URI of a dataset that is named as on the hub; None for anything else.

    >>> hub_dataset("owner/name"), hub_dataset("corpus/a.txt"), hub_dataset("corpus")
    ('hf://datasets/owner/name', None, None)
    """
    is_file = Path(str(named)).suffix in (".jsonl", ".json", ".parquet", ".txt", ".gz", ".zst")
    if is_file or not is_hub_name(named) or find_spec("huggingface_hub") is None:
        return None
    return f"hf://datasets/{named}"


def endpoint() -> str:
    """The hub's address."""
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def require_hub(name: str, option: str) -> None:
    """Raise within seconds if a dataset of this name would be read from a hub that is away.

    In the hub's offline mode `datasets` itself decides at once, by what it has in its cache.
    """
    if is_hub_name(name) and not is_offline() and not is_reachable():
        raise hub_away(f"{option} is {name!r}, a dataset of the hub")


def hub_away(what: str) -> SourceError:
    """The error of a hub that cannot be reached."""
    return SourceError(
        f"{what}, and {endpoint()} cannot be reached; connect to the network, set HF_ENDPOINT to a "
        "mirror, or give a path on this machine"
    )


def is_offline() -> bool:
    """Whether the hub's client is configured not to use the network."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON")


def is_reachable() -> bool:
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
