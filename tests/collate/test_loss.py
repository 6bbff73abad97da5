"""The packed loss and its gradients equal those of separate documents, in float64 to 1e-10."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from quire.boundaries import starts_from_lengths
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire.labels import loss_weights, shift_left

LENGTHS = [[7, 1, 12, 4], [2, 9], [24], [3, 3, 3, 8, 1]]
SPLITS = {
    "one batch": [[0, 1, 2, 3]],
    "row by row": [[0], [1], [2], [3]],
    "unequal": [[2, 0], [3], [1]],
}
TOLERANCE = {"rtol": 0, "atol": 1e-10}


def documents_of_rows() -> list[list[dict[str, np.ndarray]]]:
    """Random documents; some tokens are not trained, and one document has no target at all."""
    rng = np.random.default_rng(0)
    rows = []
    for lengths in LENGTHS:
        row = []
        for length in lengths:
            mask = rng.random(length) < 0.7
            row.append({"input_ids": rng.integers(3, 64, length), "loss_mask": mask.astype(int)})
        rows.append(row)
    rows[1][0]["loss_mask"][:] = 0
    return rows


def pack(row: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    columns = {name: np.concatenate([document[name] for document in row]) for name in row[0]}
    lengths = [len(document["input_ids"]) for document in row]
    return columns | {"document_starts": starts_from_lengths(lengths)}


def weighted_sum(model, batch, averaging: str) -> tuple[torch.Tensor, float]:
    """The sum of weighted losses, and of weights, as a training loop takes them from a batch."""
    segments = batch["seq_idx"].numpy() + 1  # padding has no label, so its number does not matter
    weights = loss_weights(batch["labels"].numpy(), segments, averaging=averaging)
    targets = torch.from_numpy(shift_left(batch["labels"].numpy(), -100))
    inputs = {k: batch[k] for k in ("input_ids", "position_ids", "use_cache") if k in batch}
    logits = model(**inputs).logits
    losses = cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return (torch.from_numpy(shift_left(weights, 0.0)) * losses).sum(), float(weights.sum())


def loss_and_gradients(model, batches, averaging: str) -> list[torch.Tensor]:
    """The loss and gradients of one optimizer step over these microbatches."""
    sums = [weighted_sum(model, batch, averaging) for batch in batches]
    total = sum(weight for _, weight in sums)
    model.zero_grad()
    for part, _ in sums:
        (part / total).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return [sum(part.detach() for part, _ in sums) / total, *gradients]


def alone(model, averaging: str) -> list[torch.Tensor]:
    """The reference: documents one by one, averages by hand."""
    sizes, means = [], []
    for row in documents_of_rows():
        for document in row:
            learnt = torch.from_numpy(document["loss_mask"])[1:] == 1
            if not learnt.any():
                continue
            ids = torch.from_numpy(document["input_ids"])
            logits = model(input_ids=ids[None]).logits[0, :-1]
            means.append(cross_entropy(logits[learnt], ids[1:][learnt]))
            sizes.append(int(learnt.sum()))
    share = {"token": 1.0, "document": 0.0, "sqrt": 0.5}[averaging]
    shares = torch.tensor(sizes, dtype=torch.float64) ** share
    loss = (torch.stack(means) * shares).sum() / shares.sum()
    model.zero_grad()
    loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **TOLERANCE)


@pytest.mark.parametrize("averaging", ["token", "document", "sqrt"])
def test_packed_loss_and_gradients_equal_those_of_separate_documents(
    tiny_llama, tokenizer, averaging
):
    expected = alone(tiny_llama, averaging)
    rows = [pack(row) for row in documents_of_rows()]
    stacked = DataCollatorForCausalLM(tokenizer, attention="segments")
    flat = PaddingFreeCollator(tokenizer, num_tokens=80, num_segments=20)
    for split in SPLITS.values():
        chosen = [[rows[i] for i in part] for part in split]
        batches = [stacked(part) | {"use_cache": False} for part in chosen]
        assert_equal(loss_and_gradients(tiny_llama, batches, averaging), expected)
    batches = [flat(part) for part in chosen]
    assert_equal(loss_and_gradients(tiny_llama, batches, averaging), expected)


def test_the_loss_differs_without_restarting_positions_or_boundary_masks(tiny_llama, tokenizer):
    expected = alone(tiny_llama, "token")[0]
    rows = [pack(row) for row in documents_of_rows()]
    good = DataCollatorForCausalLM(tokenizer, attention="segments")(rows) | {"use_cache": False}
    flat_positions = torch.arange(good["input_ids"].shape[1]).expand_as(good["input_ids"])
    leaking = good | {"position_ids": flat_positions}
    crossing = DataCollatorForCausalLM(tokenizer, attention="segments", mask_boundary_loss=False)(
        rows
    ) | {"use_cache": False}
    for batch in (leaking, crossing):
        loss = loss_and_gradients(tiny_llama, [batch], "token")[0]
        assert abs(loss - expected) > 1e-4


def assert_documents_have_their_own_logits(model, logits, rows, atol: float = 1e-10) -> None:
    """`logits` are those of the tokens of packed rows, row by row."""
    for packed, row in zip(logits, rows, strict=True):
        start = 0
        for document in row:
            ids = torch.from_numpy(document["input_ids"])
            own = model(input_ids=ids[None]).logits[0]
            torch.testing.assert_close(packed[start : start + len(ids)], own, rtol=0, atol=atol)
            start += len(ids)


@pytest.mark.parametrize(
    ("attention", "backend"),
    [("transformers", "sdpa"), ("transformers", "eager"), ("sdpa", "sdpa"), ("eager", "eager")],
)
@pytest.mark.parametrize("multiple", [1, 4])
def test_a_bare_model_call_gives_the_logits_of_separate_documents(
    tiny_llama, tokenizer, attention, backend, multiple
):
    rows = documents_of_rows()
    collator = DataCollatorForCausalLM(tokenizer, attention=attention, pad_documents_to=multiple)
    batch = collator([pack(row) for row in rows])
    segments = DataCollatorForCausalLM(tokenizer, attention="segments", pad_documents_to=multiple)(
        [pack(row) for row in rows]
    )["segment_ids"]
    tiny_llama.set_attn_implementation(backend)
    try:
        with torch.no_grad():
            logits = tiny_llama(**batch).logits
            dense = [own[places > 0] for own, places in zip(logits, segments, strict=True)]
            # Eager attention takes its softmax in float32, whatever the model's type.
            atol = 1e-6 if backend == "eager" else 1e-10
            assert_documents_have_their_own_logits(tiny_llama, dense, rows, atol)
    finally:
        tiny_llama.set_attn_implementation("sdpa")


@pytest.mark.parametrize("shape", [{}, {"num_tokens": 100, "num_segments": 32, "max_length": 24}])
def test_a_bare_model_call_with_a_padding_free_batch_gives_the_logits_of_separate_documents(
    tiny_llama, tokenizer, shape
):
    rows = documents_of_rows()
    batch = PaddingFreeCollator(tokenizer, **shape)([pack(row) for row in rows])
    with torch.no_grad():
        logits = tiny_llama(**batch).logits
        one_row = [[document for row in rows for document in row]]
        assert_documents_have_their_own_logits(tiny_llama, logits, one_row)


@pytest.mark.parametrize("fault", ["cache", "mask of ones"])
def test_documents_leak_if_transformers_does_not_detect_packing(tiny_llama, tokenizer, fault):
    rows = documents_of_rows()
    batch = DataCollatorForCausalLM(tokenizer, attention=None)([pack(row) for row in rows])
    if fault == "mask of ones":
        batch |= {"attention_mask": torch.ones_like(batch["input_ids"]), "use_cache": False}
    with torch.no_grad():
        logits = tiny_llama(**batch).logits
        with pytest.raises(AssertionError, match="not close"):
            assert_documents_have_their_own_logits(tiny_llama, logits, rows, atol=1e-4)


def test_the_loss_of_transformers_is_the_mean_over_tokens(tiny_llama, tokenizer):
    rows = [pack(row) for row in documents_of_rows()]
    batch = DataCollatorForCausalLM(tokenizer)(rows)
    with torch.no_grad():
        loss = tiny_llama(**batch).loss
    torch.testing.assert_close(
        loss.double(), alone(tiny_llama, "token")[0], rtol=0, atol=1e-6
    )  # transformers takes its loss in float32
