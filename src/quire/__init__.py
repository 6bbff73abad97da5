"""Pack variable-length documents into fixed-length training sequences."""

from quire.ledger import Ledger
from quire.plan import Plan, attention_costs, balance, lower_bound, make_plan, register_strategy

__version__ = "0.1.0"

__all__ = [
    "Ledger",
    "Plan",
    "attention_costs",
    "balance",
    "lower_bound",
    "make_plan",
    "register_strategy",
]
