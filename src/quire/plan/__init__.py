"""Lengths in, a plan out: integer arithmetic, no tokens, no I/O except plan files."""

from quire.plan.balance import Balance, attention_costs, balance
from quire.plan.bounds import lower_bound
from quire.plan.build import permutation
from quire.plan.online import OnlinePacker
from quire.plan.options import PlanOptions
from quire.plan.plan import Fragment, Plan
from quire.plan.planner import make_plan, plan_documents, plan_options, require_plannable
from quire.plan.strategies import (
    keeps_order,
    quick_strategy_names,
    register_strategy,
    strategy_names,
)

__all__ = [
    "Balance",
    "Fragment",
    "OnlinePacker",
    "Plan",
    "PlanOptions",
    "attention_costs",
    "balance",
    "keeps_order",
    "lower_bound",
    "make_plan",
    "permutation",
    "plan_documents",
    "plan_options",
    "quick_strategy_names",
    "register_strategy",
    "require_plannable",
    "strategy_names",
]
