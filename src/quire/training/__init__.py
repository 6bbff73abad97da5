"""Inside the training loop: exact resume through frameworks, the loss of packed batches, metrics.

`TrainingData` is one rank's microbatches with a state, for loops of your own, accelerate and
Lightning; `attach` connects it to a transformers or TRL trainer. `PackedLoss` is the loss of a
step.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.training.data import TrainingData
    from quire.training.loss import PackedLoss
    from quire.training.metrics import (
        DocumentMetrics,
        SourceCollator,
        SourceMetrics,
        document_metrics,
    )
    from quire.training.trainer import attach

_LAZY = {
    "DocumentMetrics": "quire.training.metrics",
    "PackedLoss": "quire.training.loss",
    "SourceCollator": "quire.training.metrics",
    "SourceMetrics": "quire.training.metrics",
    "TrainingData": "quire.training.data",
    "attach": "quire.training.trainer",
    "document_metrics": "quire.training.metrics",
}

__all__ = [
    "DocumentMetrics",
    "PackedLoss",
    "SourceCollator",
    "SourceMetrics",
    "TrainingData",
    "attach",
    "document_metrics",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'quire.training' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
