"""Choose the form of a batch that keeps documents apart in a given model, by proof."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch

from quire.collate.attention import MASK_DTYPES
from quire.errors import InvalidOption, ModelError
from quire.masks.dense import Windows
from quire.verify.isolation.check import check_isolation, collate, random_row
from quire.verify.isolation.diagnosis import recurrent_layers
from quire.verify.isolation.model import (
    attention_backend,
    is_training,
    longest_window,
    map_tensors,
    sliding_windows,
    text_config,
)
from quire.verify.isolation.model_call import ModelCall

LAYER_TYPES = {"full_attention", "sliding_attention"}
"""The types of layers whose masks we can make."""
LONGEST_PROOF = 256
"""The largest sliding window for which a document longer than the window is tried."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionChoice:
    """The collator's options of the same names."""

    attention: str | None
    windows: Windows = None
    mask_dtype: str = "float32"

    def __str__(self) -> str:
        """The options as a caller writes them."""
        windows = "" if self.windows is None else f", windows={self.windows!r}"
        dtype = "" if self.mask_dtype == "float32" else f", mask_dtype={self.mask_dtype!r}"
        return f"attention={self.attention!r}{windows}{dtype}"


_PROVEN: WeakKeyDictionary[torch.nn.Module, dict[object, AttentionChoice]] = WeakKeyDictionary()


def choose_attention(
    model: object,
    attention: str | None = "transformers",
    windows: Windows = None,
    mask_dtype: str = "float32",
) -> AttentionChoice:
    """The first form that `check_isolation` finds isolated in this model, as it is now.

    The default `attention` tries all forms, in a fixed order: what transformers does by itself, a
    mask for the model's backend with the model's sliding windows, bounds for flash kernels, segment
    ids for state-space layers. Any other value is the only form that is tried. Raises ModelError if
    none is isolated. The result is cached for each model, until its backend, dtype or mode changes.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidOption(
            f"model is a {type(model).__name__}, but the proof needs a torch module; "
            "pass the model itself, or leave model out"
        )
    model = _callable_here(model)
    known = _PROVEN.setdefault(model, {})
    asked = AttentionChoice(attention=attention, windows=windows, mask_dtype=mask_dtype)
    key = (str(asked), attention_backend(model), _dtypes(model), is_training(model))
    if key not in known:
        known[key] = _first_isolated(
            model, _candidates(model) if attention == "transformers" else iter([asked])
        )
    return known[key]


def _callable_here(model: torch.nn.Module) -> torch.nn.Module:
    """The model without its data-parallel wrapper; ModelError if it cannot be called."""
    while isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
        model = model.module
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ModelError(
            "the model's weights are on the meta device, so it cannot be called; make the "
            "collator when they are loaded, or leave model out"
        )
    return model


def _candidates(model: torch.nn.Module) -> Iterator[AttentionChoice]:
    backend, windows = attention_backend(model), sliding_windows(model)
    yield AttentionChoice(attention="transformers")
    types = windows if isinstance(windows, Mapping) else ()
    if backend == "sdpa" and set(types) <= LAYER_TYPES:
        yield AttentionChoice(attention="sdpa", windows=windows)
    if backend == "eager" and set(types) <= LAYER_TYPES:
        yield AttentionChoice(attention="eager", windows=windows, mask_dtype=_mask_dtype(model))
    if backend == "flex_attention" and windows is None:
        yield AttentionChoice(attention="flex")
    if backend is not None and "flash" in backend:
        yield AttentionChoice(attention="varlen")
    if recurrent_layers(model):
        yield AttentionChoice(attention="segments")


def _first_isolated(
    model: torch.nn.Module, candidates: Iterator[AttentionChoice]
) -> AttentionChoice:
    rows, tried = _rows(model), []
    for choice in candidates:
        failure = _failure(model, rows, choice)
        if failure is None:
            return choice
        tried.append(f"{choice} {failure}")
    raise ModelError(
        f"no batch keeps documents apart in {type(model).__name__} with "
        f"{attention_backend(model) or 'its own'} attention: {'; '.join(tried)}. Put one document "
        "in a row (packed=False), or load the model with another attn_implementation"
    )


def _failure(
    model: torch.nn.Module, rows: list[dict[str, object]], choice: AttentionChoice
) -> str | None:
    """Why this form does not work; None if it is isolated."""
    device = next(model.parameters()).device
    batch, segments = collate(rows, choice.attention, choice.windows, choice.mask_dtype)
    batch = map_tensors(batch, lambda values: values.to(device))
    try:
        report = check_isolation(model, batch, segment_ids=segments)
    except ModelError as error:
        return f"cannot be checked ({error})"
    if report.isolated:
        return None
    why = f": {report.diagnosis.cause}" if report.diagnosis else ""
    return f"is not isolated ({report.verdict}{why})"


def _rows(model: torch.nn.Module) -> list[dict[str, object]]:
    """Two rows of random tokens; one document is longer than the window, unless that is large."""
    window = longest_window(sliding_windows(model)) or 0
    long = window + 5 if window <= LONGEST_PROOF else 9
    num_ids, generator = _num_ids(model), np.random.default_rng(0)
    rows = ([7, max(long, 9), 1, 6], [5, 8, 4])
    return [random_row(np.array(lengths), num_ids, generator) for lengths in rows]


def _num_ids(model: torch.nn.Module) -> int:
    size = getattr(text_config(model), "vocab_size", None)
    if size is None:
        size = getattr(ModelCall(model).embedding, "num_embeddings", None)
    if not isinstance(size, int):
        raise ModelError(
            f"the vocabulary of {type(model).__name__} is given by neither config.vocab_size nor "
            "an embedding, so no batch can be tried; leave model out, and pass a batch of your own "
            "to quire.verify.check_isolation"
        )
    return size


def _dtypes(model: torch.nn.Module) -> frozenset[str]:
    return frozenset(str(parameter.dtype) for parameter in model.parameters())


def _mask_dtype(model: torch.nn.Module) -> str:
    """The dtype of the model's first weights, if a dense mask can have it."""
    name = str(next(model.parameters()).dtype).removeprefix("torch.")
    return name if name in MASK_DTYPES else "float32"
