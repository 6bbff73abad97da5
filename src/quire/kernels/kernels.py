"""The kernels that are tried, and why one cannot run on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

Context = Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A way to compute attention, and how to make a model use it."""

    name: str
    attn_implementation: str
    """transformers' name."""
    is_flat: bool = False
    """Whether it takes one row of bounded documents, as varlen kernels do."""
    needs: Callable[[torch.device], str | None] = lambda _: None
    """Why it cannot run on this device; None if it can."""
    context: Context = nullcontext
    has_backward: Callable[[torch.device], bool] = lambda _: True
    is_compiled: bool = False
    is_sharded: bool = False


def needs_cuda(device: torch.device) -> str | None:
    """The reason why a kernel for GPUs is skipped elsewhere."""
    return None if device.type == "cuda" else f"runs only on cuda, and the device is {device.type}"


def needs_package(package: str, device: torch.device) -> str | None:
    """The reason why a kernel of another package is skipped."""
    if (reason := needs_cuda(device)) is not None:
        return reason
    is_here = importlib.util.find_spec(package) is not None
    return None if is_here else f"{package} is not installed"


def needs_distributed(_: torch.device) -> str | None:
    """The reason why sharding is skipped."""
    return None if torch.distributed.is_available() else "torch is built without distributed"


def _only(backend: SDPBackend) -> AbstractContextManager[object]:
    return sdpa_kernel([backend])


def _is_cuda(device: torch.device) -> bool:
    return device.type == "cuda"


KERNELS = (
    Kernel(name="eager", attn_implementation="eager"),
    *(
        Kernel(
            name=f"sdpa {backend.name.lower().removesuffix('_attention')}",
            attn_implementation="sdpa",
            context=partial(_only, backend),
        )
        for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION)
    ),
    *(
        Kernel(
            name=f"sdpa {backend.name.lower().removesuffix('_attention')}",
            attn_implementation="sdpa",
            context=partial(_only, backend),
            needs=needs_cuda,
        )
        for backend in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
    ),
    Kernel(name="flex", attn_implementation="flex_attention", has_backward=_is_cuda),
    Kernel(
        name="flash-attention 2 varlen",
        attn_implementation="flash_attention_2",
        is_flat=True,
        needs=partial(needs_package, "flash_attn"),
    ),
    Kernel(
        name="flash-attention 3 varlen",
        attn_implementation="flash_attention_3",
        is_flat=True,
        needs=partial(needs_package, "flash_attn_interface"),
    ),
    Kernel(name="sdpa compiled", attn_implementation="sdpa", is_flat=True, is_compiled=True),
    Kernel(
        name="flex compiled",
        attn_implementation="flex_attention",
        is_flat=True,
        is_compiled=True,
        needs=needs_cuda,
    ),
    Kernel(name="sdpa FSDP", attn_implementation="sdpa", is_sharded=True, needs=needs_distributed),
)
"""In the order in which they are tried."""
