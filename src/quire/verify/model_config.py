"""What a transformers model's config says about its attention; nothing for other callables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from quire.masks.dense import Windows

Model = Callable[..., object]

LAYER_TYPES = ("full_attention", "sliding_attention")
"""The types of layers whose masks we can make."""


def text_config(model: object) -> object | None:
    """The config of the language model, which vision-language models keep inside their own."""
    config = getattr(model, "config", None)
    of_text = getattr(config, "get_text_config", None)
    return of_text() if callable(of_text) else config


def attention_backend(model: object) -> str | None:
    """The name of a transformers model's attention implementation; None for other callables."""
    config = getattr(model, "config", None)
    name = getattr(config, "_attn_implementation", None)
    return name if isinstance(name, str) else None


def uses_cache(model: object) -> bool:
    """Whether a call that says nothing about it makes a cache."""
    return bool(getattr(text_config(model), "use_cache", False))


def sliding_windows(model: object) -> Windows:
    """The model's sliding window: none, one for all layers, or one for each type of layer."""
    config = text_config(model)
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    if not isinstance(window, int) or isinstance(window, bool):
        return None
    if not isinstance(types, list | tuple):
        return window
    if "sliding_attention" not in types:
        return None
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(set(types))}


def longest_window(windows: Windows) -> int | None:
    """The largest of the windows."""
    if isinstance(windows, Mapping):
        return max((window for window in windows.values() if window is not None), default=None)
    return windows
