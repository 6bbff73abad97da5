"""All cases by name."""

from __future__ import annotations

from tests.guard import plans, streams, texts, training
from tests.guard.plans import Case

CASES: dict[str, Case] = {
    name: case for part in (plans, texts, streams, training) for name, case in part.cases()
}
