"""One digest of the result of a case."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from quire import Ledger, Plan

FILE = Path(__file__).with_name("digests.json")


def digest(value: object) -> str:
    """Equal for equal values, types and shapes included.

    >>> digest({"a": [1, 2]}) == digest({"a": (1, 2)})
    True
    >>> digest(np.array([1, 2])) == digest(np.array([1, 2], dtype=np.int32))
    False
    """
    text = json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plain(value: object) -> object:  # noqa: PLR0911 - one line a kind
    """The value in terms of JSON."""
    if isinstance(value, Ledger):
        return value.to_dict()
    if isinstance(value, Plan):
        arrays = ("row_offsets", "documents", "starts", "stops")
        return {name: plain(getattr(value, name)) for name in arrays}
    if isinstance(value, pa.Table):
        types = [f"{field.name}: {field.type}" for field in value.schema]
        return {"types": types, "columns": plain(value.to_pydict())}
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), value.ravel().tolist()]
    if hasattr(value, "numpy") and hasattr(value, "detach"):  # a torch tensor
        return plain(value.detach().cpu().numpy())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
