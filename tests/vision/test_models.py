"""Samples of a pack are isolated in the models: each has the logits it has without the others."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

from quire.collate import MropeOptions, VisionPaddedCollator, VisionPaddingFreeCollator
from quire.verify import IsolationOptions, check_isolation
from tests.vision.language_models import FAMILIES, model, samples, tokenizer

BACKENDS = ("sdpa", "eager")
EVERYWHERE = [(family, backend) for family in FAMILIES for backend in BACKENDS]


@functools.cache
def packed(family, attention="transformers"):
    """The pack of all five samples: an image, text, two images, a video, an image."""
    rules = MropeOptions.of_config(model(family).config)
    return VisionPaddingFreeCollator(rules, attention=attention)([list(samples(family))])


def padded(family, chosen):
    rules = MropeOptions.of_config(model(family).config)
    return VisionPaddedCollator(tokenizer(), rules)(chosen)


def spans(family):
    bounds = packed(family)["cu_seq_lens_q"].tolist()
    return [slice(*pair) for pair in itertools.pairwise(bounds)]


def isolation(family, backend, batch, **options):
    config = model(family).config
    kept = (config.image_token_id, config.video_token_id)
    asked = IsolationOptions(keep_token_ids=kept, **options)
    # The positions of samples are passed, because a leaking batch may not contain them.
    bounds = packed(family)["cu_seq_lens_q"].tolist()
    return check_isolation(
        model(family, backend), batch, document_starts=[bounds[:-1]], options=asked
    )


def logits(family, backend, batch):
    with torch.no_grad():
        return model(family, backend)(**batch).logits


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_logits_of_a_pack_equal_those_of_its_separate_samples(family, backend):
    together = logits(family, backend, packed(family))[0]
    for sample, span in zip(samples(family), spans(family), strict=True):
        # Alone, the model computes mask and positions itself.
        batch = padded(family, [sample])
        del batch["position_ids"], batch["attention_mask"]
        alone = logits(family, backend, batch)[0]
        assert alone.abs().max() > 0.1
        torch.testing.assert_close(together[span], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_logits_in_a_batch_of_packs_equal_those_of_each_separate_pack(family, backend):
    rules = MropeOptions.of_config(model(family).config)
    collator, given = VisionPaddingFreeCollator(rules), list(samples(family))
    packs = [given[:2], given[2:]]
    together = logits(family, backend, collator(packs))
    for row, pack in zip(together, packs, strict=True):
        alone = logits(family, backend, collator([pack]))[0]
        torch.testing.assert_close(row[: len(alone)], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_changing_a_sample_changes_no_bit_of_another(family, backend):
    report = isolation(family, backend, packed(family))
    assert report.verdict == "isolated", report.diagnosis
    assert report.num_documents == 5
    assert report.skipped == {}


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_a_dense_mask_isolates_samples(family, backend):
    batch = packed(family, backend)
    assert isolation(family, backend, batch).verdict == "isolated"
    expected = logits(family, backend, packed(family))
    torch.testing.assert_close(logits(family, backend, batch), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_changing_an_image_or_a_frame_changes_only_its_own_sample(family, backend):
    """Pixels reach the text through the vision tower, and through deepstack in Qwen3-VL."""
    batch, base = packed(family), logits(family, backend, packed(family))[0]
    owners = {"pixel_values": [0, 2, 2, 4], "pixel_values_videos": [3]}
    for name, grid in (
        ("pixel_values", "image_grid_thw"),
        ("pixel_values_videos", "video_grid_thw"),
    ):
        ends = batch[grid].prod(dim=1).cumsum(dim=0).tolist()
        for owner, start, end in zip(owners[name], [0, *ends], ends, strict=False):
            changed = batch[name].clone()
            changed[start:end] = changed[start:end].flip(0) + 0.5
            moved = logits(family, backend, batch | {name: changed})[0]
            for number, span in enumerate(spans(family)):
                assert torch.equal(moved[span], base[span]) == (number != owner), (name, number)


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_the_gradient_of_a_sample_at_the_pixels_of_others_is_exactly_zero(family, backend):
    batch = packed(family)
    pixels = batch["pixel_values"].clone().requires_grad_()
    out = model(family, backend)(**(batch | {"pixel_values": pixels})).logits[0]
    ends = batch["image_grid_thw"].prod(dim=1).cumsum(dim=0).tolist()
    owners = torch.tensor([0, 2, 2, 4]).repeat_interleave(batch["image_grid_thw"].prod(dim=1))
    assert len(owners) == ends[-1] == len(pixels)
    for number, span in enumerate(spans(family)):
        weights = torch.linspace(-1, 1, out[span].numel()).view_as(out[span])
        (gradient,) = torch.autograd.grad((out[span] * weights).sum(), pixels, retain_graph=True)
        touched = gradient.abs().amax(dim=1) > 0
        assert touched[owners == number].all()
        assert not touched[owners != number].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_of_a_pack_reaches_every_weight_of_the_vision_tower(family):
    owner = model(family)
    owner.zero_grad()
    owner(**packed(family)).loss.backward()
    without = [
        name
        for name, weight in owner.model.visual.named_parameters()
        if weight.grad is None or not weight.grad.abs().sum()
    ]
    assert without == []
    owner.zero_grad()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_of_a_pack_is_the_mean_over_all_targets_of_its_samples(family):
    def loss(batch):
        with torch.no_grad():
            return model(family)(**batch).loss.item()

    targets = [int((packed(family)["labels"][0, span] != -100).sum()) for span in spans(family)]
    losses = [loss(padded(family, [sample])) for sample in samples(family)]
    expected = sum(n * loss for n, loss in zip(targets, losses, strict=True)) / sum(targets)
    assert loss(packed(family)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_three_rows_of_positions_leak(family, backend):
    """Negative control: transformers does not use any of three rows as text positions."""
    batch = packed(family)
    report = isolation(family, backend, batch | {"position_ids": batch["position_ids"][1:]})
    assert report.verdict == "leak"
    assert "three rows" in report.diagnosis.cause


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_a_mask_of_ones_leaks(family, backend):
    """Negative control: with a mask, transformers does not detect samples from positions."""
    batch = packed(family)
    report = isolation(
        family, backend, batch | {"attention_mask": torch.ones_like(batch["input_ids"])}
    )
    assert report.verdict == "leak"
    assert "attention_mask" in report.diagnosis.remedy


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_that_treat_images_as_text_are_detected(family):
    """Negative control: nothing leaks, but a sample differs from what it is alone."""
    batch = packed(family)
    flat_positions = batch["position_ids"][:1].expand(4, -1, -1)
    samples_alone = batch["position_ids"]

    def call(position_ids, **others):
        whole = position_ids.shape[2] == samples_alone.shape[2]
        given = flat_positions if whole else position_ids
        return model(family)(position_ids=given, **others)

    kept = (model(family).config.image_token_id, model(family).config.video_token_id)
    report = check_isolation(call, batch, options=IsolationOptions(keep_token_ids=kept))
    assert report.verdict == "altered"
    # The sample of only text has the same positions either way.
    assert [found.document.number for found in report.altered] == [1, 3, 4, 5]


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_computed_over_a_whole_pack_differ_from_those_of_its_samples(family):
    """Negative control: `get_rope_index` over the whole row treats it as one sample."""
    batch = packed(family)
    names = ("mm_token_type_ids", "image_grid_thw", "video_grid_thw")
    whole, _ = model(family).model.get_rope_index(
        batch["input_ids"], **{name: batch[name] for name in names}
    )
    assert not torch.equal(whole, batch["position_ids"][1:])


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_equal_those_of_the_models_own_method(family):
    asked = VisionPaddingFreeCollator(model=model(family))([list(samples(family))])
    assert torch.equal(asked["position_ids"], packed(family)["position_ids"])
    padded_by_model = VisionPaddedCollator(tokenizer(), model=model(family))(samples(family))
    assert torch.equal(
        padded_by_model["position_ids"], padded(family, samples(family))["position_ids"]
    )


@pytest.mark.parametrize(("family", "backend"), EVERYWHERE)
def test_logits_of_padded_evaluation_equal_those_of_each_separate_sample(family, backend):
    batch = padded(family, samples(family))
    together = logits(family, backend, batch)
    names = ("input_ids", "mm_token_type_ids", "image_grid_thw", "video_grid_thw", "attention_mask")
    seconds = {name: batch[name] for name in ("second_per_grid_ts",) if name in batch}
    own, _ = model(family).model.get_rope_index(**{name: batch[name] for name in names}, **seconds)
    assert torch.equal(own, batch["position_ids"])
    for row, sample in enumerate(samples(family)):
        alone = logits(family, backend, padded(family, [sample]))[0]
        torch.testing.assert_close(together[row, : len(alone)], alone, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_fields_unknown_to_the_model_do_not_change_its_logits(family):
    chosen = [sample | {"channel": "a", "length": 3} for sample in samples(family)]
    rules = MropeOptions.of_config(model(family).config)
    batch = VisionPaddingFreeCollator(rules)([chosen])
    assert batch["channel"] == ["a"] * 5
    assert torch.equal(logits(family, "sdpa", batch), logits(family, "sdpa", packed(family)))
