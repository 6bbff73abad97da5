"""`DataCollatorForCausalLM(model=…)`: a form that is isolated in that model, or a refusal."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest
import torch
from tests.verify.isolation.models import Tokenizer, model, rows
from tools.architectures import build

from quire.collate import DataCollatorForCausalLM
from quire.errors import InvalidOption, ModelError
from quire.verify import check_isolation
from quire.verify.isolation import attention_choice

other_model = functools.cache(build)


def collator(given, **options) -> DataCollatorForCausalLM:
    return DataCollatorForCausalLM(Tokenizer(), model=given, **options)


def assert_isolated(given, made: DataCollatorForCausalLM) -> None:
    report = check_isolation(given, dict(made(rows())))
    assert report.isolated, report.diagnosis


@pytest.mark.parametrize(
    ("name", "backend"), [("llama", "sdpa"), ("qwen3", "eager"), ("mistral", "sdpa")]
)
def test_the_default_form_is_kept_if_it_is_isolated(name, backend):
    made = collator(model(name, backend))
    assert (made.attention, made.windows) == ("transformers", None)
    assert_isolated(model(name, backend), made)


@pytest.mark.parametrize(
    ("name", "backend"),
    [("opt", "sdpa"), ("opt", "eager"), ("mpt", "eager"), ("falcon", "sdpa"), ("biogpt", "eager")],
)
def test_a_model_that_ignores_position_ids_gets_a_mask_of_its_backend(name, backend):
    given = other_model(name, backend, torch.float32)
    plain = check_isolation(given, dict(DataCollatorForCausalLM(Tokenizer())(rows())))
    assert plain.verdict == "leak"
    made = collator(given)
    assert (made.attention, made.windows) == (backend, None)
    assert_isolated(given, made)


@pytest.mark.parametrize("name", ["opt", "biogpt"])
def test_a_model_in_bfloat16_gets_an_eager_mask_of_its_own_dtype(name):
    given = other_model(name, "eager", torch.bfloat16)
    made = collator(given)
    assert (made.attention, made.mask_dtype) == ("eager", "bfloat16")
    mask = made(rows())["attention_mask"]
    assert (mask.dtype, float(mask[0, 0, 1, 0])) == (torch.bfloat16, 0.0)
    assert_isolated(given, made)


def test_a_model_that_mixes_windows_gets_a_mask_for_each_type_of_layer():
    made = collator(model("gpt_oss", "eager"))
    windows = {"full_attention": None, "sliding_attention": 4}
    assert (made.attention, made.windows) == ("eager", windows)
    masks = made(rows())["attention_mask"]
    assert {kind: tuple(mask.shape) for kind, mask in masks.items()} == {
        "full_attention": (2, 1, 19, 19),
        "sliding_attention": (2, 1, 19, 19),
    }
    seen = {kind: (mask[0, 0, 6] == 0).nonzero()[:, 0].tolist() for kind, mask in masks.items()}
    assert seen == {"full_attention": [*range(7)], "sliding_attention": [3, 4, 5, 6]}
    assert_isolated(model("gpt_oss", "eager"), made)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            lambda: other_model("bloom", "eager", torch.float32),
            "in BloomForCausalLM with eager attention: attention='tr",
        ),
        (lambda: model("mamba", "eager"), r"is not isolated \(leak: .*MambaMixer carry a state"),
    ],
    ids=["bloom", "mamba"],
)
def test_a_model_that_no_batch_keeps_apart_is_refused_with_the_reason(given, message):
    with pytest.raises(ModelError, match=message) as refusal:
        collator(given())
    assert "Put one document in a row" in str(refusal.value)


def test_a_requested_form_is_proven_and_not_replaced():
    assert collator(model("llama"), attention="sdpa").attention == "sdpa"
    with pytest.raises(ModelError, match=r"attention=None is not isolated \(leak: use_cache is on"):
        collator(model("llama"), attention=None)
    with pytest.raises(ModelError, match=r"attention='sdpa' is not isolated \(altered"):
        collator(model("mistral"), attention="sdpa")
    assert collator(model("mistral"), attention="sdpa", windows=4).windows == 4


def test_the_proof_is_cached_while_the_model_does_not_change(monkeypatch):
    given, checks = copy.deepcopy(model("llama")), []

    def counted(*arguments, **options):
        checks.append(1)
        return check_isolation(*arguments, **options)

    monkeypatch.setattr(attention_choice, "check_isolation", counted)
    collator(given), collator(given)
    assert len(checks) == 1
    collator(given.train())
    assert len(checks) == 2


def test_a_model_in_training_mode_stays_in_it():
    given = copy.deepcopy(other_model("opt", "eager", torch.float32)).train()
    assert collator(given).attention == "eager"
    assert given.training


def test_the_collator_does_not_keep_the_model():
    made = pickle.loads(pickle.dumps(collator(model("gpt_oss", "eager"))))  # noqa: S301 (our own)
    assert made.model is None
    assert set(made(rows())["attention_mask"]) == {"full_attention", "sliding_attention"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": 4}, "leaves the mask to the model; use attention='sdpa' or 'eager'"),
        ({"windows": 4, "attention": "varlen"}, "attention='varlen' leaves the mask to the model"),
        ({"mask_dtype": "bfloat"}, "unknown mask_dtype 'bfloat'; did you mean 'bfloat16'"),
        ({"mask_dtype": "float16", "return_tensors": "np"}, "use return_tensors='pt'"),
        ({"model": "llama"}, "model is a str, but the proof needs a torch module"),
    ],
)
def test_contradictory_options_are_refused(options, message):
    with pytest.raises(InvalidOption, match=message):
        DataCollatorForCausalLM(Tokenizer(), **options)


class OwnModel(torch.nn.Module):
    """No config: the mean of a document's past, which is found in `position_ids`."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16)

    def forward(self, input_ids, position_ids, **others):
        segments = (position_ids == 0).cumsum(1)
        seen = (segments[:, :, None] == segments[:, None]).float().tril()
        return self.head(seen / seen.sum(-1, keepdim=True) @ self.embedding(input_ids))


def test_a_model_without_a_config_is_tried_on_the_ids_of_its_embedding():
    assert collator(OwnModel()).attention == "transformers"
    assert collator(torch.nn.DataParallel(OwnModel())).attention == "transformers"
    wrapped = torch.nn.DataParallel(other_model("opt", "eager", torch.float32))
    assert collator(wrapped).attention == "eager"


def test_a_model_that_cannot_be_called_is_refused_with_the_remedy():
    with torch.device("meta"):
        given = OwnModel()
    with pytest.raises(ModelError, match=r"on the meta device.*when they are loaded"):
        collator(given)
    with pytest.raises(
        ModelError, match=r"the vocabulary of Linear is given by neither.*leave model out"
    ):
        collator(torch.nn.Linear(2, 2))
