"""A machine on which bfloat16 arithmetic ends the process: reported before it happens."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from tests.bf16 import cap_instruction_set
from tests.verify.isolation.models import collate, model, rows

from quire.cli.verify_model import verify_model
from quire.errors import ModelError
from quire.verify import check_isolation
from quire.verify.isolation import bfloat16

KILLED = -signal.SIGILL


@pytest.fixture
def machine(monkeypatch):
    """Say how the probe ends: without a cap, and with one."""

    def make(plain: int, capped: int = 0, amx: bool = True) -> list[str | None]:
        asked = []

        def exit_status(environment):
            asked.append(environment.get(bfloat16.VARIABLE))
            return plain if asked[-1] is None else capped

        monkeypatch.setenv(bfloat16.VARIABLE, "")  # so that what a test sets is taken back
        monkeypatch.delenv(bfloat16.VARIABLE)
        monkeypatch.setattr(bfloat16, "_exit_status", exit_status)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
        bfloat16.bf16_crashes.cache_clear()
        return asked

    yield make
    bfloat16.bf16_crashes.cache_clear()


@pytest.mark.parametrize(
    ("status", "crashes"), [(0, False), (1, False), (KILLED, True), (0xC000001D, True)]
)
def test_a_probe_that_is_killed_is_a_crash_and_one_that_fails_is_not(machine, status, crashes):
    machine(status)
    assert bfloat16.bf16_crashes() is crashes


def test_the_probe_runs_once_in_a_process(machine):
    asked = machine(KILLED)
    for _ in range(3):
        bfloat16.bf16_crashes()
    assert asked == [None]


@pytest.mark.parametrize(
    ("plain", "capped", "cap", "reason"),
    [
        (0, 0, None, None),
        (KILLED, 0, "AVX512_CORE_BF16", None),
        (KILLED, KILLED, None, "bfloat16 arithmetic crashes on this machine, also with"),
    ],
)
def test_the_cap_is_set_if_it_helps(machine, plain, capped, cap, reason):
    machine(plain, capped)
    found = cap_instruction_set()
    assert os.environ.get("ONEDNN_MAX_CPU_ISA") == cap
    assert (found is None) if reason is None else found.startswith(reason)


@pytest.mark.parametrize(
    ("capped", "remedy"),
    [
        (0, "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment before Python starts"),
        (KILLED, r"check in float32, or on another machine"),
    ],
)
def test_a_model_in_bf16_is_refused_with_the_variable_that_helps(machine, capped, remedy):
    machine(KILLED, capped)
    with pytest.raises(ModelError, match=f"ends the process on this machine.*{remedy}"):
        check_isolation(model("llama", "eager", torch.bfloat16), collate(rows()))


def test_the_command_reports_a_crash(machine, tmp_path):
    model("llama", "eager", torch.bfloat16).save_pretrained(tmp_path)
    machine(KILLED)
    with pytest.raises(ModelError, match="ONEDNN_MAX_CPU_ISA"):
        verify_model(tmp_path)


def test_a_model_in_float32_needs_no_probe(machine):
    asked = machine(KILLED)
    assert check_isolation(model("llama"), collate(rows())).isolated
    assert asked == []


def test_a_processor_without_amx_needs_no_probe(machine):
    asked = machine(KILLED, amx=False)
    bfloat16.require_bf16(torch.nn.Linear(2, 2, dtype=torch.bfloat16))
    assert asked == []


@pytest.mark.slow
def test_the_real_probe_exits_or_is_killed():
    status = bfloat16._exit_status(dict(os.environ))
    assert status <= 0  # 1 would be a probe that cannot import torch, and proves nothing
