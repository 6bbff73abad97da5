"""Verdicts on many architectures, compared with a truth computed independently."""

from __future__ import annotations

import logging

import pytest
import torch
from tests.verify.isolation.models import model, vision_model
from tools.architectures import SETTINGS
from tools.isolation_table import PAGE, examine

from quire.verify.isolation.model import sliding_windows, text_config, uses_cache

QUICK = [("bloom", "eager"), ("falcon", "sdpa")]
OTHERS = [
    (name, backend)
    for name in SETTINGS
    for backend in ("eager", "sdpa")
    if (name, backend) not in QUICK
]


@pytest.fixture(autouse=True)
def quiet():
    """transformers warns about kernels that are not installed."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def assert_true(name: str, backend: str) -> None:
    torch.set_num_threads(1)
    line = examine(name, backend)
    if line is not None:  # the architecture has this backend
        assert line.false_verdicts == []


@pytest.mark.parametrize(("name", "backend"), QUICK)
def test_the_verdict_on_an_architecture_is_correct(name, backend):
    assert_true(name, backend)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of transformers' own code
@pytest.mark.parametrize(("name", "backend"), OTHERS)
def test_the_verdict_on_every_architecture_is_correct(name, backend):
    assert_true(name, backend)


def test_the_page_has_every_architecture_and_no_false_verdict():
    text = PAGE.read_text(encoding="utf-8")
    assert len(SETTINGS) >= 25
    assert [name for name in SETTINGS if f"| {name} |" not in text] == []
    assert "cases, 0 verdicts that contradict the" in text


def test_the_text_config_of_a_vision_model_is_used():
    assert (uses_cache(vision_model()), uses_cache(model("llama"))) == (True, True)
    assert text_config(vision_model()) is vision_model().config.text_config
    assert text_config(lambda: None) is None


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("llama", None),
        ("mistral", 4),
        ("gemma3", {"full_attention": None, "sliding_attention": 4}),
    ],
)
def test_windows_are_those_of_the_models_layers(name, windows):
    assert sliding_windows(model(name)) == windows
