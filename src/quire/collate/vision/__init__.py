"""Collators for vision-language samples: padding-free packs, or padded samples."""

from quire.collate.vision.collators import (
    VisionCollator,
    VisionPaddedCollator,
    VisionPaddingFreeCollator,
)
from quire.collate.vision.mrope import MropeOptions, VisionModel, resolve_mrope
from quire.collate.vision.packed import PackedVisionCollator

__all__ = [
    "MropeOptions",
    "PackedVisionCollator",
    "VisionCollator",
    "VisionModel",
    "VisionPaddedCollator",
    "VisionPaddingFreeCollator",
    "resolve_mrope",
]
