"""The cause of a verdict; of a leak, by trying the change to the call that would remove it.

A suspect is not reported as the cause before the change was tried: the check runs again without the
suspected part, and what restores isolation is the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from quire.errors import ModelError
from quire.masks.dense import bool_mask, float_mask, masks_by_layer
from quire.masks.segments import seq_idx
from quire.verify.isolation.documents import Array, Batch, BatchDocuments, as_numpy, like
from quire.verify.isolation.model import (
    Model,
    attention_backend,
    longest_window,
    sliding_windows,
    uses_cache,
)
from quire.verify.isolation.report import Dependence, Diagnosis, IsolationReport

Change: TypeAlias = Callable[[Batch], dict[str, object]]
RECURRENT = re.compile(
    r"mamba|ssm|rwkv|recurrent|deltanet|deltaattention|linearattention|lightning|shortconv|lstm",
    re.IGNORECASE,
)


class Suspect(NamedTuple):
    """Something in the call that may be the cause, how to avoid it, and the call without it."""

    cause: str
    remedy: str
    change: Change


def diagnose(
    model: Model, batch: Batch, documents: BatchDocuments, is_isolated: Callable[[Batch], bool]
) -> Diagnosis:
    """The smallest change that restores isolation: one suspect, or all up to one of them."""
    suspects = [
        *_mask_suspects(model, batch, documents),
        *_cache_suspects(model, batch),
        *_position_suspects(model, batch, documents),
        *_state_suspects(model, documents),
    ]
    backend = [*_backend_suspects(model, batch, documents)]
    several = [suspects[:count] for count in range(2, len(suspects) + 1)]
    # The backend comes last: a dense mask cures almost anything.
    for chosen in [*([suspect] for suspect in suspects), *several, backend]:
        changed = dict(batch)
        for suspect in chosen:
            changed = suspect.change(changed)
        with suppress(ModelError):  # raised if the model does not take the changed call
            if is_isolated(changed):
                return Diagnosis(
                    cause="; and ".join(suspect.cause for suspect in chosen),
                    remedy="; and ".join(suspect.remedy for suspect in chosen),
                    confirmed=True,
                )
    return _unresolved(model, suspects + backend)


def explain(report: IsolationReport) -> Diagnosis | None:
    """The cause and the remedy of a verdict that no other call can tell more about."""
    if report.verdict == "disagreement":
        return Diagnosis(
            cause="; ".join(f"{found.form}: {found.message}" for found in report.disagreements),
            remedy="let one collator make all parts of the batch, and slice none of them "
            "afterwards",
        )
    if report.verdict == "isolated":
        return None
    if report.dependence != "shown":
        return _nothing_seen(report.dependence)
    remedy = "none is needed for training; for equal bits, experts_implementation='batched_mm'"
    if report.verdict == "unproven":
        remedy = "check again with sdpa or eager attention in float32, which has gradients"
    return Diagnosis(
        cause="a kernel whose rounding depends on all tokens of the batch, such as grouped experts",
        remedy=remedy,
    )


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


def _nothing_seen(dependence: Dependence) -> Diagnosis:
    """Why the check proves nothing, and what to check instead."""
    if dependence == "untestable":
        return Diagnosis(
            cause="no document of the batch has a token after one that may be changed, so nothing "
            "shows that this model depends on earlier tokens at all",
            remedy="check a batch that has documents of two tokens or more (on the command line: "
            "another --seed, or more --documents)",
        )
    return Diagnosis(
        cause="the output does not depend on earlier tokens at all, not even on those of its own "
        "document (a head or an attention output whose weights are zero?); a leak could not "
        "have been seen",
        remedy="give a model with trained or random weights and make the same call",
    )


def _mask_suspects(model: Model, batch: Batch, documents: BatchDocuments) -> Iterator[Suspect]:
    mask, backend = batch.get("attention_mask"), attention_backend(model)
    if not isinstance(mask, torch.Tensor | np.ndarray):
        return
    if mask.ndim == 2:
        yield Suspect(
            "an attention_mask of [rows, tokens] was passed; with one, transformers does not "
            "look for documents in position_ids",
            "leave attention_mask out (the collator's default batch has none)",
            lambda batch: {k: value for k, value in batch.items() if k != "attention_mask"},
        )
    elif backend == "eager" and as_numpy(mask).dtype == np.bool_:
        yield Suspect(
            "a bool mask was passed to eager attention, which adds its mask to the scores",
            "collate with attention='eager', which emits a float mask",
            lambda batch: {**batch, "attention_mask": _dense_mask(model, documents)},
        )
    elif mask.ndim == 4:
        yield Suspect(
            _mask_cause(model),
            "collate with attention='transformers', which leaves masks to the model",
            lambda batch: _default_call(batch, documents),
        )


def _mask_cause(model: Model) -> str:
    window = longest_window(sliding_windows(model))
    if window:
        return (
            "the 4-D attention_mask replaces the model's own masks, which have a sliding window "
            f"of {window}"
        )
    return "the 4-D attention_mask shows tokens of other documents, or hides a document's own"


def _cache_suspects(model: Model, batch: Batch) -> Iterator[Suspect]:
    if batch.get("use_cache", uses_cache(model)) and attention_backend(model) is not None:
        yield Suspect(
            "use_cache is on (the default of a bare call); with a cache, transformers does "
            "not look for documents in position_ids",
            "pass use_cache=False, as the collator's default batch does",
            lambda batch: {**batch, "use_cache": False},
        )


def _position_suspects(model: Model, batch: Batch, documents: BatchDocuments) -> Iterator[Suspect]:
    given = batch.get("position_ids")
    if given is None and "cu_seq_lens_q" in batch:
        yield Suspect(
            "only flash kernels read cu_seq_lens_q; this call runs "
            f"{attention_backend(model) or 'something else'}",
            "collate with attention='transformers', or load the model with flash attention",
            lambda batch: _default_call(batch, documents),
        )
    elif given is None or not _restart(as_numpy(given), documents):
        yield Suspect(
            "position_ids do not restart at every document",
            "pass position_ids that restart (DataCollatorForCausalLM, or rows with "
            "document_starts)",
            lambda batch: {**batch, "position_ids": _positions(batch, documents)},
        )
    if given is not None and _lacks_text_row(model, as_numpy(given)):
        yield Suspect(
            "position_ids have mRoPE's three rows (or one, which the model makes three of); "
            "transformers finds documents only in a text row before them",
            "pass four rows, the text positions first, as VisionPaddingFreeCollator does",
            lambda batch: {**batch, "position_ids": _with_text_row(given, documents)},
        )


def _lacks_text_row(model: Model, positions: Array) -> bool:
    if positions.ndim == 3:
        return bool(positions.shape[0] == 3)
    return "mrope_section" in str(getattr(model, "config", None))


def _state_suspects(model: Model, documents: BatchDocuments) -> Iterator[Suspect]:
    if layers := recurrent_layers(model):
        yield Suspect(
            f"{_carry_state(layers)} and got no seq_idx",
            "collate with attention='segments', which emits seq_idx",
            lambda batch: {**batch, "seq_idx": _seq_idx(batch, documents)},
        )


def _carry_state(layers: list[str]) -> str:
    verb = "carries" if len(layers) == 1 else "carry"
    return f"{', '.join(layers)} {verb} a state across documents"


def _backend_suspects(model: Model, batch: Batch, documents: BatchDocuments) -> Iterator[Suspect]:
    backend, mask = attention_backend(model), batch.get("attention_mask")
    if backend is None or hasattr(mask, "mask_mod"):
        return
    windows = sliding_windows(model)
    form = "eager" if backend == "eager" else "sdpa"
    needed = f"attention={form!r}" + (f", windows={windows!r}" if windows else "")
    is_given = isinstance(mask, torch.Tensor | np.ndarray | Mapping)
    yield Suspect(
        _mask_cause(model) if is_given else f"the model's {backend} attention ignores position_ids",
        "collate with DataCollatorForCausalLM(tokenizer, model=model), which chooses the "
        f"masks that this model needs ({needed})",
        lambda batch: {**batch, "attention_mask": _dense_mask(model, documents)},
    )


def _unresolved(model: Model, suspects: list[Suspect]) -> Diagnosis:
    if layers := recurrent_layers(model):
        return Diagnosis(
            cause=f"{_carry_state(layers)}, and the kernels in use ignore seq_idx (transformers' "
            "own fallbacks, without mamba_ssm and causal_conv1d, do)",
            remedy="put one document in a row (packed=False), or install the kernels, collate with "
            "attention='segments' and check again on that machine",
        )
    cause = "it is in the model itself, as the call has none of the usual causes"
    if suspects:
        tried = "; ".join(suspect.cause for suspect in suspects)
        cause = f"each of these was removed without effect: {tried}"
    return Diagnosis(
        cause=f"unknown; {cause}",
        remedy="put one document in a row (packed=False) until the model's attention is understood",
    )


def _default_call(batch: Batch, documents: BatchDocuments) -> dict[str, object]:
    """The call that the default collator makes for the same tokens."""
    plain = {name: batch[name] for name in ("input_ids", "labels") if name in batch}
    return {**plain, "position_ids": _positions(batch, documents), "use_cache": False}


def _positions(batch: Batch, documents: BatchDocuments) -> object:
    return like(batch["input_ids"], documents.position_ids())


def _restart(positions: Array, documents: BatchDocuments) -> bool:
    if positions.ndim == 3:  # the positions of images do not count one by one, so they may be right
        return True
    return bool(((positions == documents.position_ids()) | ~documents.is_document).all())


def _with_text_row(given: object, documents: BatchDocuments) -> object:
    rows, text = as_numpy(given), documents.position_ids()[None]
    rows = rows if rows.ndim == 3 else np.broadcast_to(rows, (3, *rows.shape))
    return like(given, np.concatenate([text, rows]))


def _seq_idx(batch: Batch, documents: BatchDocuments) -> object:
    index, given = seq_idx(documents.segments), batch["input_ids"]
    return torch.from_numpy(index).to(given.device) if isinstance(given, torch.Tensor) else index


def _dense_mask(model: Model, documents: BatchDocuments) -> object:
    segments = torch.from_numpy(documents.segments.astype(np.int64))
    parameter = next(iter(model.parameters())) if isinstance(model, torch.nn.Module) else segments

    def mask(window: int | None) -> torch.Tensor:
        if attention_backend(model) == "eager":
            return float_mask(segments, parameter.dtype, window).to(parameter.device)
        return bool_mask(segments, window).to(parameter.device)

    return masks_by_layer(mask, sliding_windows(model))
