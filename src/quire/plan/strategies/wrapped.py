"""All documents in order, cut at the end of every row, whatever the overlong policy.

The planner lays these rows out itself (`quire.plan.fill.wrap`).
"""

from __future__ import annotations

from quire.plan.strategies import Strategy
from quire.plan.strategies.greedy import greedy

STRATEGY = Strategy(place=greedy, keeps_order=True, wraps=True)
