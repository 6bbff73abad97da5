"""Whether bfloat16 arithmetic works on this machine, tried in a child process.

A virtual machine can advertise AMX without granting it. torch's bf16 linear layer then ends the
process with SIGILL, which no `except` can catch. Capping oneDNN's instruction set helps, but oneDNN
reads the variable once, so it must be set before the process computes anything.

This is the only module of quire that starts a program: this Python, isolated (`-I`), with the fixed
source `PROBE`, which takes no arguments and reads none of the user's files.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable

from quire.errors import ModelError

VARIABLE = "ONEDNN_MAX_CPU_ISA"
CAP = "AVX512_CORE_BF16"
"""The largest instruction set without AMX."""
PROBE = """
import torch

layer = torch.nn.Linear(64, 64, dtype=torch.bfloat16)
layer(torch.ones(64, 64, dtype=torch.bfloat16)).sum().backward()
"""
TIMEOUT_SECONDS = 120
WINDOWS_ILLEGAL_INSTRUCTION = 0xC000001D


@functools.cache
def bf16_crashes(cap: str | None = None) -> bool:
    """Whether a process that computes in bfloat16 is killed here, with this cap if one is given.

    Costs one import of torch (seconds) the first time. A probe that fails in another way, for
    example because torch is missing, is not a crash.
    """
    environment = dict(os.environ)
    if cap is not None:
        environment[VARIABLE] = cap
    status = _exit_status(environment)
    return status < 0 or status == WINDOWS_ILLEGAL_INSTRUCTION


def require_bf16(model: object) -> None:
    """Raise ModelError if the model has bfloat16 weights on a CPU that crashes on them."""
    if not _has_bf16_on_cpu(model) or not _has_amx() or not bf16_crashes():
        return
    remedy = f"set {VARIABLE}={CAP} in the environment before Python starts, or check in float32"
    if bf16_crashes(CAP):
        remedy = f"check in float32, or on another machine ({VARIABLE}={CAP} does not help here)"
    raise ModelError(
        "bfloat16 arithmetic ends the process on this machine (tried in a child process: its CPU "
        f"advertises instructions that it does not allow); {remedy}"
    )


def _exit_status(environment: dict[str, str]) -> int:
    """The exit status of the probe, negative for a signal. Tests replace this function."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", PROBE],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 1
    return done.returncode


def _has_bf16_on_cpu(model: object) -> bool:
    parameters = getattr(model, "parameters", None)
    if not callable(parameters):
        return False
    return any(
        str(parameter.dtype) == "torch.bfloat16" and parameter.device.type == "cpu"
        for parameter in parameters()
    )


def _has_amx() -> bool:
    """Whether the CPU says that it has AMX; True if torch cannot tell."""
    import torch

    is_supported: Callable[[], bool] | None = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return is_supported is None or bool(is_supported())
