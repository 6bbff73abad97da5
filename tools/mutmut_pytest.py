"""A pytest plugin for runs under mutmut, 3.8, which asks items for what pytest 9.2 calls nodeid."""

from __future__ import annotations

import pytest

pytest.Item._nodeid = property(lambda item: item.nodeid)  # type: ignore[attr-defined]
