"""Load a transformers model, and check it on rows of random tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quire.collate.attention import ATTENTION
from quire.errors import ModelError, missing_dependency, unknown_name
from quire.verify.isolation.check import check_isolation, collate, random_row
from quire.verify.isolation.model import map_tensors
from quire.verify.isolation.report import IsolationReport

DTYPES = ("auto", "float64", "float32", "bfloat16", "float16")
SHORT = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOptions:
    """The batch of random tokens, and how the model is called with it."""

    attention: str | None = "transformers"
    """The collator's option of the same name."""
    with_attention_mask: bool = False
    """Whether an `attention_mask` of ones is passed, too."""
    use_cache: bool | None = None
    """None: what the collator emits."""
    num_rows: int = 2
    documents_per_row: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.attention is not None and self.attention not in ATTENTION:
            raise unknown_name("attention", self.attention, ("none", *ATTENTION))


def load_causal_lm(
    path: Path,
    dtype: str = "auto",
    attn_implementation: str | None = None,
    device: str = "cpu",
) -> torch.nn.Module:
    """The model of a folder, in training mode; nothing is downloaded, and none of its code runs."""
    dtype = SHORT.get(dtype, dtype)
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{path} holds no config.json; give the folder of a transformers model "
            "(save_pretrained writes one)"
        )
    _require_device(device)
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        raise missing_dependency("transformers", "loading a model", "hf") from None
    try:
        model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            attn_implementation=attn_implementation,
            local_files_only=True,
            trust_remote_code=False,
        )
    except Exception as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        backend = "" if attn_implementation is None else f" with {attn_implementation=}"
        remedy = "check its files, or name an attn_implementation that the model has"
        raise ModelError(f"{path} cannot be loaded{backend}: {reason}; {remedy}") from error
    return _on_device(model, device).train()


def _require_device(device: str) -> None:
    """Raise for a device that this machine does not have, before a model is loaded."""
    try:
        torch.empty(1, device=torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise _no_device(device, error) from error


def _no_device(device: str, error: Exception) -> ModelError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return ModelError(
        f"the model cannot be put on {device}: {reason}; name a device that this machine has"
    )


def _on_device(model: torch.nn.Module, device: str) -> torch.nn.Module:
    try:
        return model.to(torch.device(device))
    except (RuntimeError, AssertionError) as error:
        raise _no_device(device, error) from error


def check_call(model: torch.nn.Module, options: CallOptions) -> IsolationReport:
    """The isolation report of a transformers model, with random documents of 1 to 16 tokens."""
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    generator = np.random.default_rng(options.seed)
    rows = [
        random_row(
            generator.integers(1, 17, options.documents_per_row), table.num_embeddings, generator
        )
        for _ in range(options.num_rows)
    ]
    collated, segments = collate(rows, options.attention)
    batch = dict(collated)
    if options.with_attention_mask:
        batch["attention_mask"] = (segments > 0).long()
    if options.use_cache is not None:
        batch["use_cache"] = options.use_cache
    place = next(model.parameters()).device
    batch = dict(map_tensors(batch, lambda values: values.to(place)))
    return check_isolation(model, batch, segment_ids=segments)
