"""Vision-language samples, packed: lists of already encoded samples that fill a pack together.

Samples go through `FusionDataset` (several datasets in their ratios) and `PackedVLDataset` (packs),
to a collator of `quire.collate`. Nothing here needs torch before it is used with torch.
"""

from importlib import import_module

from quire.vision.options import VisionConfig, VisionPackingOptions

_LAZY: dict[str, str] = {}
"""Names and their modules, which are imported when they are first asked for."""

__all__ = ["VisionConfig", "VisionPackingOptions"]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'quire.vision' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
