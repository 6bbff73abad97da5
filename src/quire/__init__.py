"""Pack variable-length documents into fixed-length training sequences."""

from quire.ledger import Ledger
from quire.plan import Plan, lower_bound, make_plan, register_strategy

__version__ = "0.1.0"

__all__ = ["Ledger", "Plan", "lower_bound", "make_plan", "register_strategy"]
