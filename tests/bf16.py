"""bfloat16 on a machine that crashes on it: torch's instructions are capped, or tests skipped.

The probe imports torch in a child process, which takes seconds, so its answer is kept in pytest's
cache and handed to the workers of pytest-xdist through the environment.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata

import pytest

from quire.verify.isolation.bfloat16 import CAP, VARIABLE, bf16_crashes

ANSWER = "QUIRE_TESTS_BF16"
"""Empty if bf16 works, else why its tests are skipped."""


def prepare(config: pytest.Config) -> None:
    """Make bf16 safe in this process and its children; call it before torch is imported."""
    if ANSWER in os.environ:
        return
    key = f"quire/bf16-{metadata.version('torch')}-{platform.node()}-{platform.release()}"
    cache = getattr(config, "cache", None)  # pytest -p no:cacheprovider has none
    known = cache.get(key, None) if cache else None
    if known is None:
        known = {"reason": cap_instruction_set() or "", "cap": os.environ.get(VARIABLE, "")}
        if cache:
            cache.set(key, known)
    if known["cap"]:
        os.environ[VARIABLE] = known["cap"]
    os.environ[ANSWER] = known["reason"]


def cap_instruction_set() -> str | None:
    """Set the cap in this process's environment if bf16 crashes without it; None if bf16 works now.

    Returns the reason if bf16 still does not work.
    """
    if not bf16_crashes():
        return None
    if bf16_crashes(CAP):
        return f"bfloat16 arithmetic crashes on this machine, also with {VARIABLE}={CAP}"
    os.environ[VARIABLE] = CAP
    return None


def skip_if_it_crashes(items: list[pytest.Item]) -> None:
    """Skip the cases that compute in bfloat16, with the reason, where nothing makes it work."""
    reason = os.environ.get(ANSWER)
    for item in items:
        if reason and ("bfloat16" in item.nodeid or "bf16" in item.nodeid):
            item.add_marker(pytest.mark.skip(reason=reason))
