"""Pack vision-language samples: lists of encoded samples that fill a pack together.

Samples go through `FusionDataset` (several datasets in given ratios) and `PackedVLDataset` (packs)
to a collator of `quire.collate`; `configure_training` sets all of it up for a transformers Trainer.
Packing itself does not need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from quire.errors import missing_dependency
from quire.vision.fusion import FusionDataset
from quire.vision.grouping import calculate_matched_group
from quire.vision.options import (
    VisionConfig,
    VisionPackingOptions,
    evaluation_template,
    prepare_template,
)
from quire.vision.telemetry import PackingTelemetry, aggregate_metrics

if TYPE_CHECKING:
    from quire.vision.callback import PackingCallback
    from quire.vision.dataset import PackedVLDataset
    from quire.vision.training import VisionTraining, configure_training

_LAZY = {
    "PackedVLDataset": "quire.vision.dataset",
    "PackingCallback": "quire.vision.callback",
    "VisionTraining": "quire.vision.training",
    "configure_training": "quire.vision.training",
}
"""Names whose modules import torch, if it is installed; imported on first access."""

_OPTIONAL = ("safetensors", "torch", "transformers")

__all__ = [
    "FusionDataset",
    "PackedVLDataset",
    "PackingCallback",
    "PackingTelemetry",
    "VisionConfig",
    "VisionPackingOptions",
    "VisionTraining",
    "aggregate_metrics",
    "calculate_matched_group",
    "configure_training",
    "evaluation_template",
    "prepare_template",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'quire.vision' has no attribute {name!r}")
    try:
        module = import_module(_LAZY[name])
    except ModuleNotFoundError as missing:
        if missing.name not in _OPTIONAL:
            raise
        raise missing_dependency(missing.name, f"quire.vision.{name}", "hf,torch") from None
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
