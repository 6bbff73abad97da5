"""One training step: its sequences to rows of all ranks, and their values there and back."""

from quire.step.costs import model_cost
from quire.step.options import StepOptions
from quire.step.pack import pack_step
from quire.step.plan import StepPlan

__all__ = ["StepOptions", "StepPlan", "model_cost", "pack_step"]
