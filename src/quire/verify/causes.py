"""The usual causes of a leak, each with the change to the call that would take it away.

A suspicion is not printed as a cause before the change was tried: the check runs again without the
suspected part, and what restores isolation is the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from quire.errors import ModelError
from quire.masks.dense import bool_mask, float_mask, masks_by_layer
from quire.masks.segments import seq_idx
from quire.verify.calls import Model, like
from quire.verify.layout import Batch, Layout, as_numpy
from quire.verify.model_config import (
    attention_backend,
    longest_window,
    sliding_windows,
    uses_cache,
)
from quire.verify.report import Diagnosis

Change: TypeAlias = Callable[[dict[str, object]], dict[str, object]]
RECURRENT = re.compile(
    r"mamba|ssm|rwkv|recurrent|deltanet|deltaattention|linearattention|lightning|shortconv|lstm",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Suspect:
    """Something in the call that may be the cause, and the call without it."""

    cause: str
    remedy: str
    change: Change


def diagnose(
    model: Model, batch: Batch, layout: Layout, is_isolated: Callable[[Batch], bool]
) -> Diagnosis:
    """The smallest change that restores isolation: one suspect, or all up to one of them."""
    suspects = list(_suspects(model, batch, layout))
    backend = list(_of_backend(model, batch, layout))  # last: a dense mask cures almost anything
    singly = [[suspect] for suspect in suspects]
    for chosen in [*singly, *_growing(suspects), backend]:
        changed = dict(batch)
        for suspect in chosen:
            changed = suspect.change(changed)
        if _holds(is_isolated, changed):
            return Diagnosis(
                cause="; and ".join(suspect.cause for suspect in chosen),
                remedy="; and ".join(suspect.remedy for suspect in chosen),
                confirmed=True,
            )
    return _unresolved(model, suspects + backend)


def recurrent_layers(model: Model) -> list[str]:
    """Names of the classes of layers that carry a state from token to token.

    >>> recurrent_layers(torch.nn.LSTM(2, 2))
    ['LSTM']
    """
    if not isinstance(model, torch.nn.Module):
        return []
    names = {type(module).__name__ for module in model.modules()}
    layers = sorted(name for name in names if RECURRENT.search(name))
    blocks = ("Model", "ForCausalLM", "Norm", "Embedding", "Cache", "Gated")
    return [name for name in layers if not name.endswith(blocks)]


def _holds(is_isolated: Callable[[Batch], bool], batch: Batch) -> bool:
    try:
        return is_isolated(batch)
    except ModelError:  # the model does not take the changed call: not the answer
        return False


def _growing(suspects: list[Suspect]) -> list[list[Suspect]]:
    return [suspects[:count] for count in range(2, len(suspects) + 1)]


def _suspects(model: Model, batch: Batch, layout: Layout) -> Iterator[Suspect]:
    yield from _of_masks(model, batch, layout)
    yield from _of_cache(model, batch)
    yield from _of_positions(model, batch, layout)
    yield from _of_state(model, layout)


def _of_masks(model: Model, batch: Batch, layout: Layout) -> Iterator[Suspect]:
    mask, backend = batch.get("attention_mask"), attention_backend(model)
    if not isinstance(mask, torch.Tensor | np.ndarray):
        return
    if mask.ndim == 2:
        yield Suspect(
            cause="an attention_mask of [rows, tokens] was passed; with one, transformers does not "
            "look for documents in position_ids",
            remedy="leave attention_mask out (the collator's default batch has none)",
            change=lambda batch: _without(batch, "attention_mask"),
        )
    elif backend == "eager" and as_numpy(mask).dtype == np.bool_:
        yield Suspect(
            cause="a bool mask was passed to eager attention, which adds its mask to the scores",
            remedy="collate with attention='eager', which emits a float mask",
            change=lambda batch: {**batch, "attention_mask": _dense(model, layout)},
        )
    elif mask.ndim == 4:
        yield Suspect(
            cause=_about_mask(model),
            remedy="collate with attention='transformers', which leaves masks to the model",
            change=lambda batch: _default_call(batch, layout),
        )


def _about_mask(model: Model) -> str:
    window = longest_window(sliding_windows(model))
    if window:
        return (
            "the 4-D attention_mask takes the place of the model's own masks, which have a sliding "
            f"window of {window}"
        )
    return "the 4-D attention_mask shows tokens of other documents, or hides a document's own"


def _of_cache(model: Model, batch: Batch) -> Iterator[Suspect]:
    if batch.get("use_cache", uses_cache(model)) and attention_backend(model) is not None:
        yield Suspect(
            cause="use_cache is on (the default of a bare call); with a cache, transformers does "
            "not look for documents in position_ids",
            remedy="pass use_cache=False, as the collator's default batch does",
            change=lambda batch: {**batch, "use_cache": False},
        )


def _of_positions(model: Model, batch: Batch, layout: Layout) -> Iterator[Suspect]:
    given = batch.get("position_ids")
    if given is None and "cu_seq_lens_q" in batch:
        yield Suspect(
            cause="only flash kernels read cu_seq_lens_q; this call runs "
            f"{attention_backend(model) or 'something else'}",
            remedy="collate with attention='transformers', or load the model with flash attention",
            change=lambda batch: _default_call(batch, layout),
        )
    elif given is None or not _restart(given, layout):
        yield Suspect(
            cause="position_ids do not restart at every document",
            remedy="pass position_ids that restart (DataCollatorForCausalLM, or rows with "
            "document_starts)",
            change=lambda batch: {**batch, "position_ids": _positions(batch, layout)},
        )
    if given is not None and _lacks_text_row(model, as_numpy(given)):
        yield Suspect(
            cause="position_ids have mRoPE's three rows (or one, which the model makes three of); "
            "transformers finds documents only in a text row before them",
            remedy="pass four rows, the text positions first, as VisionPaddingFreeCollator does",
            change=lambda batch: {**batch, "position_ids": _with_text_row(given, layout)},
        )


def _lacks_text_row(model: Model, positions: npt.NDArray[np.generic]) -> bool:
    if positions.ndim == 3:
        return bool(positions.shape[0] == 3)
    config = getattr(model, "config", None)
    return "mrope_section" in str(config)


def _of_state(model: Model, layout: Layout) -> Iterator[Suspect]:
    layers = recurrent_layers(model)
    if layers:
        yield Suspect(
            cause=f"{', '.join(layers)} carry a state across documents and got no seq_idx",
            remedy="collate with attention='segments', which emits seq_idx",
            change=lambda batch: {**batch, "seq_idx": _seq_idx(batch, layout)},
        )


def _of_backend(model: Model, batch: Batch, layout: Layout) -> Iterator[Suspect]:
    backend = attention_backend(model)
    if backend is None or hasattr(batch.get("attention_mask"), "mask_mod"):
        return
    given = isinstance(batch.get("attention_mask"), torch.Tensor | np.ndarray | Mapping)
    yield Suspect(
        cause=_about_mask(model)
        if given
        else f"the model's {backend} attention ignores position_ids",
        remedy="collate with DataCollatorForCausalLM(tokenizer, model=model), which chooses the "
        f"masks that this model needs ({_masks_needed(model)})",
        change=lambda batch: {**batch, "attention_mask": _dense(model, layout)},
    )


def _unresolved(model: Model, suspects: list[Suspect]) -> Diagnosis:
    layers = recurrent_layers(model)
    if layers:
        return Diagnosis(
            cause=f"{', '.join(layers)} carry a state across documents, and the kernels in use "
            "ignore seq_idx (transformers' own fallbacks, without mamba_ssm and causal_conv1d, do)",
            remedy="put one document in a row (packed=False), or install the kernels, collate with "
            "attention='segments' and check again on that machine",
            confirmed=False,
        )
    tried = "; ".join(suspect.cause for suspect in suspects)
    return Diagnosis(
        cause=f"unknown; each of these was taken away without effect: {tried}"
        if tried
        else "unknown; it is in the model itself, as the call has none of the usual causes",
        remedy="put one document in a row (packed=False) until the model's attention is understood",
        confirmed=False,
    )


def _without(batch: Batch, name: str) -> dict[str, object]:
    return {key: value for key, value in batch.items() if key != name}


def _default_call(batch: Batch, layout: Layout) -> dict[str, object]:
    """The call that the default collator makes for the same tokens."""
    plain = {name: batch[name] for name in ("input_ids", "labels") if name in batch}
    return {**plain, "position_ids": _positions(batch, layout), "use_cache": False}


def _positions(batch: Batch, layout: Layout) -> object:
    return like(batch["input_ids"], layout.position_ids())


def _restart(given: object, layout: Layout) -> bool:
    positions = as_numpy(given)
    if positions.ndim == 3:  # the rows of images do not count one by one: they are no evidence
        return True
    return bool(((positions == layout.position_ids()) | ~layout.is_document).all())


def _with_text_row(given: object, layout: Layout) -> object:
    rows, text = as_numpy(given), layout.position_ids()[None]
    rows = rows if rows.ndim == 3 else np.broadcast_to(rows, (3, *rows.shape))
    return like(given, np.concatenate([text, rows]))


def _seq_idx(batch: Batch, layout: Layout) -> object:
    index = seq_idx(layout.segments)
    given = batch["input_ids"]
    return torch.from_numpy(index).to(given.device) if isinstance(given, torch.Tensor) else index


def _dense(model: Model, layout: Layout) -> object:
    segments = torch.from_numpy(layout.segments.astype(np.int64))
    parameter = next(iter(model.parameters())) if isinstance(model, torch.nn.Module) else segments

    def mask(window: int | None) -> torch.Tensor:
        if attention_backend(model) == "eager":
            return float_mask(segments, parameter.dtype, window).to(parameter.device)
        return bool_mask(segments, window).to(parameter.device)

    return masks_by_layer(mask, sliding_windows(model))


def _masks_needed(model: Model) -> str:
    windows = sliding_windows(model)
    form = "eager" if attention_backend(model) == "eager" else "sdpa"
    return f"attention={form!r}" + (f", windows={windows!r}" if windows else "")
