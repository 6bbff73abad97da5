"""Collators for vision-language samples: padding-free packs, or padded samples."""

from quire.collate.vision.collators import (
    VisionCollator,
    VisionPaddedCollator,
    VisionPaddingFreeCollator,
)
from quire.collate.vision.mrope import MropeOptions, VisionModel, resolve_mrope

__all__ = [
    "MropeOptions",
    "VisionCollator",
    "VisionModel",
    "VisionPaddedCollator",
    "VisionPaddingFreeCollator",
    "resolve_mrope",
]
