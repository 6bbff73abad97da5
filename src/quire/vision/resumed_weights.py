"""Whether a model that goes on from a checkpoint has the checkpoint's weights.

transformers 5.22 saves Qwen2-VL and Qwen2.5-VL under older names than it loads when a Trainer
resumes: it warns, and trains on from whatever weights the model had.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import safe_open

from quire.errors import InvalidState

WEIGHTS_NAME = "model.safetensors"
_SAMPLED = 4096
Print: TypeAlias = tuple[tuple[int, ...], str]


def require_weights_of(model: torch.nn.Module, folder: Path) -> None:
    """Nothing, if the model has every weight of the checkpoint, under its name or another.

    Weights in several files, or of adapters, are not looked at.
    """
    path = folder / WEIGHTS_NAME
    if not path.exists():
        return
    own = model.state_dict()
    with safe_open(path, framework="pt") as file:
        renamed = [name for name in file.keys() if name not in own]  # noqa: SIM118 - no mapping
        if not renamed:
            return
        prints = {_print_of(weight) for weight in own.values()}
        missing = [name for name in renamed if _print_of(file.get_tensor(name)) not in prints]
    if missing:
        raise InvalidState(
            f"{len(missing)} weights of {path}, {missing[0]!r} among them, are not in the model: "
            "the Trainer loads by name, and the model has other names; make the model with "
            f"from_pretrained({str(folder)!r}) before you resume"
        )


def _print_of(weight: torch.Tensor) -> Print:
    """What tells a weight from others: its shape, and values from all over it."""
    flat = weight.detach().reshape(-1)
    values = flat[:: max(1, len(flat) // _SAMPLED)].to("cpu", torch.float32).contiguous()
    return tuple(weight.shape), hashlib.sha256(values.numpy().tobytes()).hexdigest()
