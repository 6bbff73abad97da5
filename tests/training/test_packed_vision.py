"""Rows that `quire pack` wrote of real pictures give a real model what separate samples give it."""

from __future__ import annotations

import pytest
import torch

import quire
from quire.collate import PackedVisionCollator, VisionPaddingFreeCollator
from quire.collate.vision import resolve_mrope
from tests.training.matrix import pack_samples
from tests.vision import language_models

pytestmark = pytest.mark.slow
FAMILY = "qwen2_5_vl"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    pack_samples(folder, FAMILY)
    return folder, quire.PackedDataset(folder / "packed vision")


@pytest.fixture(scope="module")
def collate(rows):
    plain = VisionPaddingFreeCollator(resolve_mrope(None, language_models.model(FAMILY)))
    processor = language_models.processor(FAMILY).image_processor
    return PackedVisionCollator(processor, plain, image_root=rows[0])


def logits(batch) -> torch.Tensor:
    inputs = {name: value for name, value in batch.items() if name not in ("labels", "length")}
    with torch.no_grad():
        return language_models.model(FAMILY)(**inputs).logits


def several(rows) -> list[int]:
    packed = rows[1]
    return [n for n in range(len(packed)) if len(packed[n]["document_starts"]) > 1][:4]


def test_logits_of_a_row_are_those_of_its_samples(rows, collate):
    chosen = several(rows)
    assert any(sum(rows[1][number]["num_images"]) > 1 for number in chosen)
    batch = collate([rows[1][number] for number in chosen])
    found = logits(batch)
    for place, number in enumerate(chosen):
        start = 0
        for sample in collate.samples(rows[1][number]):
            alone = logits(collate.collator([[sample]]))[0]
            torch.testing.assert_close(
                found[place, start : start + len(alone)], alone, atol=2e-6, rtol=1e-5
            )
            start += len(alone)


def test_a_changed_sample_changes_no_bit_of_the_others(rows, collate):
    row = dict(rows[1][several(rows)[0]])
    before = logits(collate([row]))[0]
    ids, types = row["input_ids"].copy(), row["mm_token_type_ids"]
    starts = row["document_starts"].tolist()
    last = starts[-1] - 1  # of the sample before the last one
    assert types[last] == 0
    ids[last] += 1
    after = logits(collate([row | {"input_ids": ids}]))[0]
    begin = starts[-2]
    assert torch.equal(after[:begin], before[:begin])
    assert torch.equal(after[starts[-1] :], before[starts[-1] :])
    assert not torch.equal(after[last], before[last])
