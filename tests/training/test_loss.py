"""The loss of a step has the same gradients however its documents are packed and distributed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from quire.collate import DataCollatorForCausalLM
from quire.errors import InvalidOption, InvalidRow
from quire.training import PackedLoss
from quire.training.loss import batch_segments
from tests.training import layouts, loss_ranks
from tests.training.launching import environment, torchrun

TOLERANCE = {"rtol": 0, "atol": 1e-10}


def step(owner, batches, averaging: str) -> list[torch.Tensor]:
    loss = PackedLoss(averaging=averaging)
    total = loss.denominator(batches)
    owner.zero_grad()
    parts = []
    for batch in batches:
        parts.append(loss(owner(**layouts.inputs(batch)).logits, batch, total))
        parts[-1].backward()
    return [sum(part.detach() for part in parts), *layouts.gradients(owner)]


def assert_equal(found, expected, tolerance=TOLERANCE) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("averaging", ["token", "document", "sqrt"])
def test_gradients_are_the_same_in_every_layout_and_with_accumulation(averaging):
    owner = layouts.model()
    expected = layouts.alone(owner, averaging)
    for layout in layouts.LAYOUTS:
        for accumulation in (1, 4):
            batches = layouts.microbatches(layout, accumulation)
            assert_equal(step(owner, batches, averaging), expected)


def test_a_mean_of_means_over_microbatches_differs():
    owner = layouts.model()
    expected = layouts.alone(owner, "token")[0]
    means = [owner(**batch).loss for batch in layouts.microbatches("packed", 4)]
    assert abs(sum(means) / len(means) - expected) > 1e-4


def test_document_weights_scale_the_gradients_of_their_documents():
    owner, loss = layouts.model(), PackedLoss(averaging="document")
    batch = layouts.microbatches("packed", 8)[0]  # one row of four documents, one without target
    only_first = [1.0, 0.0, 0.0, 0.0, *[0.0] * (int(batch_segments(batch).max()) - 4)]
    total = loss.denominator([batch], [only_first])
    weighted = loss(owner(**layouts.inputs(batch)).logits, batch, total, only_first)
    first = layouts.padded([layouts.documents()[0][0]])
    alone = loss(owner(**layouts.inputs(first)).logits, first, loss.denominator([first]))
    torch.testing.assert_close(weighted, alone, **TOLERANCE)


def test_a_batch_without_labels_is_an_error():
    with pytest.raises(InvalidOption, match="the batch has input_ids but no labels"):
        PackedLoss().denominator([{"input_ids": torch.zeros(1, 2)}])


@pytest.mark.slow
def test_two_ranks_and_a_trainer_have_the_gradients_of_separate_documents(tmp_path):
    script = Path(loss_ranks.__file__)
    command = [*torchrun(2), str(script), str(tmp_path)]
    subprocess.run([sys.executable, *command], check=True, env=environment(), timeout=600)
    owner = layouts.model()
    expected = {name: layouts.alone(owner, name) for name in ("token", "document")}
    for rank in range(2):
        found = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        for layout in layouts.LAYOUTS:
            for averaging in ("token", "document"):
                for accumulation in (1, 4):
                    assert_equal(found[f"{layout} {averaging} {accumulation}"], expected[averaging])
        for averaging in ("token", "document"):
            for average_tokens in (True, False):
                gradients = found[f"trainer {averaging} {average_tokens}"]
                assert_equal(gradients, expected[averaging][1:])
        # transformers' own loss is computed in float32; it is the same only if it averages tokens
        # across devices, which is its default.
        close = {"rtol": 1e-3, "atol": 1e-6}
        assert_equal(found["trainer None True"], expected["token"][1:], close)
        worst = max(
            float((one - other).abs().max() / other.abs().max())
            for one, other in zip(found["trainer None False"], expected["token"][1:], strict=True)
        )
        assert worst > 0.01


def test_document_weights_by_row_need_none_for_padding():
    rows = [{"input_ids": [5] * 6, "document_starts": [0, 2]}]
    rows += [{"input_ids": [6] * 3, "document_starts": [0]}]
    batch = DataCollatorForCausalLM(layouts.TOKENIZER)(rows)
    loss = PackedLoss(averaging="document")
    assert loss.totals(batch, [[1.0, 3.0], [2.0]]).weight == 6.0
    assert loss.totals(batch, [1.0, 3.0, 2.0, 0.0]).weight == 6.0
    with pytest.raises(InvalidRow, match=r"3 lists, but the batch has shape \(2, 6\)"):
        loss.totals(batch, [[1.0], [3.0], [2.0]])
    with pytest.raises(InvalidRow, match="1 weights for row 0, which has 2 documents"):
        loss.totals(batch, [[1.0], [3.0, 2.0]])
    with pytest.raises(InvalidRow, match=r"rows have 4 documents; .* or a list for each row"):
        loss.totals(batch, [1.0, 3.0, 2.0])
