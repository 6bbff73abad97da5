"""A transformers Trainer trains on packs, evaluates on padded samples, and resumes exactly."""

from __future__ import annotations

import copy
import functools
import itertools
import json
import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

from quire.collate import MropeOptions, VisionPaddingFreeCollator
from quire.errors import InvalidOption, InvalidState
from quire.verify import IsolationOptions, check_isolation
from quire.vision import (
    FusionDataset,
    PackedVLDataset,
    VisionPackingOptions,
    configure_training,
)
from quire.vision.adapters import TrainingPacks
from quire.vision.callback import STATE_NAME
from tests.vision.language_models import PICTURES, encode, model, tokenizer

FAMILY = "qwen3_vl"
OPTIONS = VisionPackingOptions(packing=True, packing_length=128, packing_buffer=16)

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")


@functools.cache
def encoded(name, number, family=FAMILY):
    """Real images through the real processor; every third sample is only text."""
    samples = []
    for index in range(number):
        picture = [] if index % 3 == 0 else [PICTURES[(index + number) % len(PICTURES)]]
        sample = encode(family, "word " * (1 + index * 5 % 7) + "<|im_end|>", *picture)
        size = len(sample["input_ids"])
        samples.append(sample | {"length": size, "id": f"{name}{index}", "channel": name})
    return samples


def fusion(seed=3):
    datasets = {"charts": encoded("charts", 24), "scans": encoded("scans", 16)}
    return FusionDataset(datasets, {"charts": 1.0, "scans": 0.5}, seed=seed)


def arguments(folder, **others):
    given = {
        "per_device_train_batch_size": 2,
        "num_train_epochs": 2,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "use_cpu": True,
        "seed": 1,
    }
    return TrainingArguments(output_dir=str(folder), **(given | others))


def training(folder, dataset=None, options=OPTIONS, **others):
    return configure_training(
        arguments(folder, **others),
        options,
        train_dataset=fusion() if dataset is None else dataset,
        eval_dataset=encoded("scans", 16)[:5],
        model=model(FAMILY),
        tokenizer=tokenizer(),
    )


def trainer_of(prepared):
    """A Trainer on a fresh copy of the model; records the samples of every forward pass."""
    fresh = copy.deepcopy(model(FAMILY)).train()
    trainer = prepared.make_trainer(model=fresh)
    trainer.seen, trainer.evaluated = [], []

    def note(module, positional, keywords):
        (trainer.seen if module.training else trainer.evaluated).append(keywords)

    fresh.register_forward_pre_hook(note, with_kwargs=True)
    return trainer


def ids(batches):
    return [batch["id"] for batch in batches]


def flat(packs):
    return list(itertools.chain.from_iterable(packs))


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_equal_bits(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def test_a_batch_size_above_one_becomes_one_with_a_warning_and_the_effective_batch_stays(
    tmp_path, caplog
):
    given = arguments(tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=3)
    with caplog.at_level(logging.WARNING, "quire.vision"):
        made = configure_training(given, OPTIONS, train_dataset=fusion(), model=model(FAMILY))
    assert made.args.per_device_train_batch_size == 1
    assert made.args.gradient_accumulation_steps == 12
    assert "but it was 4: it is now 1, and gradient_accumulation_steps is 12" in caplog.text
    assert (given.per_device_train_batch_size, given.gradient_accumulation_steps) == (4, 3)


def test_the_batch_size_of_the_options_is_used(tmp_path):
    options = replace(OPTIONS, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    plain = TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    made = configure_training(plain, options, train_dataset=fusion(), model=model(FAMILY))
    assert made.args.per_device_train_batch_size == 1
    assert made.args.gradient_accumulation_steps == 8
    unpacked = configure_training(plain, replace(options, packing=False), model=model(FAMILY))
    assert unpacked.args.per_device_train_batch_size == 4
    assert unpacked.args.gradient_accumulation_steps == 2


def test_different_batch_sizes_in_options_and_arguments_are_rejected(tmp_path):
    options = replace(OPTIONS, per_device_train_batch_size=4)
    with pytest.raises(InvalidOption, match="is 2 in TrainingArguments and 4 in the options"):
        configure_training(arguments(tmp_path), options, train_dataset=fusion())


def test_a_batch_size_of_one_stays_without_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "quire.vision"):
        made = training(tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=3)
    assert made.args.gradient_accumulation_steps == 3
    assert caplog.text == ""


def test_without_packing_datasets_and_batch_size_stay_as_they_are(tmp_path):
    dataset = encoded("charts", 24)
    made = training(tmp_path, dataset, VisionPackingOptions())
    assert made.train_dataset is dataset
    assert made.callbacks == []
    assert made.args.per_device_train_batch_size == 2
    batch = next(iter(trainer_of(made).get_train_dataloader()))
    assert batch["attention_mask"].shape == batch["input_ids"].shape
    assert len(batch["input_ids"]) == 2


def test_persistent_workers_are_turned_off(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "quire.vision"):
        made = training(tmp_path, dataloader_num_workers=2, dataloader_persistent_workers=True)
    assert not made.args.dataloader_persistent_workers
    assert "persistent workers" in caplog.text


def test_several_devices_in_one_process_are_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainingArguments, "train_batch_size", 2)
    with pytest.raises(InvalidOption, match="start one process per device"):
        training(tmp_path)


def test_the_template_of_evaluation_is_an_unpacked_copy(tmp_path):
    template = SimpleNamespace(packing=False, padding_free=False, max_length=128)
    made = configure_training(
        arguments(tmp_path), OPTIONS, train_dataset=fusion(), template=template
    )
    assert (template.packing, template.padding_free) == (True, True)
    assert (made.eval_template.packing, made.eval_template.padding_free) == (False, False)


@pytest.mark.slow
def test_training_is_packed_and_evaluation_is_padded(tmp_path):
    trainer = trainer_of(training(tmp_path, per_device_eval_batch_size=3))
    trainer.train()
    trainer.evaluate()
    for batch in trainer.seen:
        assert batch["position_ids"].shape == (4, 1, batch["input_ids"].shape[1])
        assert batch["input_ids"].shape[1] <= 128
        assert "attention_mask" not in batch
        assert len(batch["cu_seq_lens_q"]) == len(batch["id"]) + 1
    assert [batch["input_ids"].shape[0] for batch in trainer.evaluated] == [3, 2]
    for batch in trainer.evaluated:
        assert batch["attention_mask"].shape == batch["input_ids"].shape
        assert "cu_seq_lens_q" not in batch
    assert flat(ids(trainer.evaluated)) == [f"scans{n}" for n in range(5)]


def test_evaluation_is_packed_on_request(tmp_path):
    options = VisionPackingOptions(packing=True, eval_packing=True, packing_length=128)
    trainer = trainer_of(training(tmp_path, options=options))
    trainer.evaluate()
    assert all(batch["position_ids"].shape[0] == 4 for batch in trainer.evaluated)
    # Every sample, although packing_drop_last is on: that applies to training.
    assert sorted(flat(ids(trainer.evaluated))) == [f"scans{n}" for n in range(5)]


def test_packed_evaluation_uses_the_templates_length(tmp_path):
    options = VisionPackingOptions(packing=True, eval_packing=True)
    made = configure_training(
        arguments(tmp_path),
        options,
        train_dataset=fusion(),
        eval_dataset=encoded("scans", 16)[:5],
        model=model(FAMILY),
        template=SimpleNamespace(max_length=128),
    )
    assert made.eval_dataset.packed.packing_length == 128


@pytest.mark.parametrize("number", [0, 1, 2])
def test_samples_that_fill_no_pack_are_rejected(tmp_path, number):
    with pytest.raises(InvalidOption, match=f"no pack can be made from {number} samples"):
        training(tmp_path, encoded("charts", 24)[:number])


def test_packs_of_another_rank_are_rejected(tmp_path):
    packed = PackedVLDataset(encoded("charts", 24), packing_length=128, rank=1, world_size=2)
    with pytest.raises(InvalidOption, match="is of rank 1 of 2 but this process is rank 0 of 1"):
        training(tmp_path, packed)


@pytest.mark.parametrize("eval_packing", [False, True])
def test_several_evaluation_datasets_are_reported_separately(tmp_path, eval_packing):
    options = VisionPackingOptions(packing=True, eval_packing=eval_packing, packing_length=128)
    held_out = {"charts": encoded("charts", 24)[:3], "scans": encoded("scans", 16)[:2]}
    made = configure_training(
        arguments(tmp_path),
        options,
        train_dataset=fusion(),
        eval_dataset=held_out,
        model=model(FAMILY),
    )
    trainer = trainer_of(made)
    metrics = trainer.evaluate()
    assert metrics["eval_charts_loss"] > 0
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert {"eval_charts_loss", "eval_scans_loss"} <= logged
    assert len(flat(ids(trainer.evaluated))) == 5
    assert ("attention_mask" in trainer.evaluated[0]) != eval_packing


def test_a_batch_size_that_deepspeed_has_already_read_is_rejected(tmp_path):
    given = arguments(tmp_path)
    given.deepspeed = {"train_batch_size": "auto"}
    with pytest.raises(InvalidOption, match=r"is 2 and DeepSpeed.*multiply .* by 2"):
        configure_training(given, OPTIONS)


def test_a_batch_of_the_trainer_is_isolated(tmp_path):
    trainer = trainer_of(training(tmp_path))
    batch = dict(next(iter(trainer.get_train_dataloader())))
    config = trainer.model.config
    kept = (config.image_token_id, config.video_token_id)
    for name in ("id", "channel", "length"):
        assert len(batch.pop(name)) == len(batch["cu_seq_lens_q"]) - 1
    report = check_isolation(trainer.model, batch, options=IsolationOptions(keep_token_ids=kept))
    assert report.verdict == "isolated"
    assert report.num_documents > 2


@pytest.mark.slow
def test_two_epochs_train_on_their_complete_schedules_and_report_them(tmp_path, caplog):
    """Fusion of two datasets, packing on, evaluation unpacked (seed 004)."""
    made = training(tmp_path, eval_strategy="epoch")
    trainer = trainer_of(made)
    num_packs = len(made.train_dataset)
    with caplog.at_level(logging.INFO, "quire.vision"):
        trainer.train()
    assert trainer.state.global_step == 2 * -(-num_packs // 2)
    assert trainer.state.epoch == 2.0
    seen = ids(trainer.seen)
    assert len(seen) == 2 * num_packs
    epochs = [seen[:num_packs], seen[num_packs:]]
    assert epochs[0] != epochs[1]
    for epoch, packs in enumerate(epochs):
        made.train_dataset.packed.set_epoch(epoch)
        assert packs == [[sample["id"] for sample in pack] for pack in made.train_dataset.packed]
        assert f"packing, epoch {epoch}: {num_packs} packs of 128 tokens" in caplog.text
    assert trainer.state.log_history[0]["loss"] > trainer.state.log_history[-2]["eval_loss"] > 0
    assert [
        round(entry["epoch"]) for entry in trainer.state.log_history if "eval_loss" in entry
    ] == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "free"), [(0, [9, 10]), (1, [10, 9])], ids=["rising", "falling"])
def test_an_epoch_with_more_or_fewer_packs_than_the_first_loses_neither_packs_nor_steps(
    tmp_path, seed, free
):
    """A Trainer measures only the first epoch."""
    options = VisionPackingOptions(packing=True, packing_length=96, packing_buffer=8)
    packed = PackedVLDataset.from_options(fusion(seed), options)
    expected = []
    for epoch, number in enumerate(free):
        packed.set_epoch(epoch)
        assert len(packed) == number
        # An epoch with more packs than planned keeps the group it would have dropped.
        epoch_packs = packed if number == max(free) else [packed.dataset]
        expected.append(sorted(sample["id"] for pack in epoch_packs for sample in pack))
    trainer = trainer_of(training(tmp_path, fusion(seed), options, per_device_train_batch_size=1))
    trainer.train()
    assert trainer.state.global_step == trainer.state.max_steps == 2 * max(free)
    seen = ids(trainer.seen)
    assert [sorted(flat(seen[:10])), sorted(flat(seen[10:]))] == expected


@pytest.mark.slow
def test_a_plain_trainer_accepts_packs_by_number(tmp_path):
    """With its defaults: it does not look into packs for columns to remove."""
    options = replace(OPTIONS, packing_drop_last=False)
    packs = PackedVLDataset.from_options(encoded("charts", 24), options).map_style()
    fresh = copy.deepcopy(model(FAMILY)).train()
    trainer = Trainer(
        model=fresh,
        args=arguments(tmp_path, num_train_epochs=1),
        train_dataset=packs,
        data_collator=VisionPaddingFreeCollator(MropeOptions.of_config(fresh.config)),
    )
    seen = []
    fresh.register_forward_pre_hook(
        lambda module, positional, keywords: seen.append(keywords), with_kwargs=True
    )
    trainer.train()
    assert {len(batch["input_ids"]) for batch in seen} <= {1, 2}  # rows are packs
    assert sorted(flat(ids(seen))) == sorted(sample["id"] for sample in encoded("charts", 24))
    assert trainer.state.global_step == -(-len(packs) // 2)


def test_the_callback_sets_the_epoch_of_the_packs(tmp_path):
    made = training(tmp_path)
    made.callbacks[0].on_epoch_begin(made.args, TrainerState(epoch=1.0), TrainerControl())
    assert made.train_dataset.packed.epoch == 1


@pytest.mark.slow
def test_telemetry_of_every_epoch_is_logged_kept_and_reported_as_metrics(tmp_path):
    made = training(tmp_path)
    trainer = trainer_of(made)
    trainer.train()
    (callback,) = made.callbacks
    assert [telemetry.epoch for telemetry in callback.history] == [0, 1]
    for telemetry in callback.history:
        assert telemetry.num_packs == len(made.train_dataset)
        telemetry.ledger.check()
        assert json.dumps(telemetry.to_dict())
    logged = [entry for entry in trainer.state.log_history if "packing/fill_mean" in entry]
    assert [entry["packing/fill_mean"] for entry in logged] == [
        telemetry.fill_mean for telemetry in callback.history
    ]
    assert all("packing/single_long_percent" in entry for entry in logged)


@pytest.mark.slow
def test_a_trainer_made_by_hand_has_telemetry_in_its_history(tmp_path):
    from transformers import Trainer

    made = training(tmp_path, num_train_epochs=1)
    trainer = Trainer(model=copy.deepcopy(model(FAMILY)), **made.trainer_arguments())
    trainer.train()
    assert sum("packing/fill_mean" in entry for entry in trainer.state.log_history) == 1


def test_metrics_of_single_datasets_are_dropped_and_aggregates_stay(tmp_path):
    from transformers import TrainerCallback

    class Reporter(TrainerCallback):
        def __init__(self):
            self.got = []

        def on_log(self, args, state, control, logs=None, **others):
            self.got.append(dict(logs))

    reporter = Reporter()
    made = training(tmp_path)
    trainer = made.make_trainer(model=copy.deepcopy(model(FAMILY)), callbacks=[reporter])
    trainer.log({"loss": 1.0, "token_acc": 0.5, "loss_charts": 2.0, "scans/token_acc": 0.1})
    for entry in (reporter.got[-1], trainer.state.log_history[-1]):
        assert entry.items() >= {"loss": 1.0, "token_acc": 0.5}.items()
        assert not {"loss_charts", "scans/token_acc"} & set(entry)


@pytest.mark.slow
def test_token_accuracy_covers_all_targets_since_the_last_log(tmp_path):
    trainer = trainer_of(training(tmp_path, num_train_epochs=1))
    steps = []

    def note(module, positional, keywords, output):
        wanted = keywords["labels"][0, 1:]
        guessed = output.logits[0, :-1].argmax(dim=-1)
        steps.append(((guessed == wanted).sum().item(), (wanted != -100).sum().item()))

    trainer.model.register_forward_hook(note, with_kwargs=True)
    trainer.train()
    logged = [entry["token_acc"] for entry in trainer.state.log_history if "loss" in entry]
    pairs = [steps[at : at + 2] for at in range(0, len(steps), 2)]  # two packs in a step
    assert logged == [sum(right for right, _ in p) / sum(n for _, n in p) for p in pairs]
    assert 0 < logged[-1] <= 1
    assert not any(
        "token_acc" in entry for entry in trainer.state.log_history if "loss" not in entry
    )


@pytest.mark.slow
def test_the_model_has_no_hook_after_training(tmp_path):
    trainer = trainer_of(training(tmp_path, num_train_epochs=1))
    before = len(trainer.model._forward_hooks)
    trainer.train()
    assert len(trainer.model._forward_hooks) == before


class Counting:
    """Samples by number; records what is read."""

    def __init__(self, samples):
        self.samples, self.read = samples, []

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        self.read.append(self.samples[number]["id"])
        return self.samples[number]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of two epochs with a checkpoint after every step."""
    folder = tmp_path_factory.mktemp("whole")
    trainer = trainer_of(training(folder, save_strategy="steps", save_steps=1))
    trainer.train()
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 3, 4, 5, 7])
def test_a_run_resumed_from_a_checkpoint_ends_with_the_same_bits(whole, step):
    """Mid-epoch, at the end of an epoch, in the second one; finished packs are not read again."""
    num_packs, steps = len(whole.train_dataset), whole.state.max_steps // 2
    assert (num_packs % 2, steps) == (1, 4)  # the last step of an epoch has one pack, others two
    dataset = Counting(encoded("charts", 24))
    fused = FusionDataset(
        {"charts": dataset, "scans": encoded("scans", 16)},
        {"charts": 1.0, "scans": 0.5},
        seed=3,
        lengths={"charts": [sample["length"] for sample in dataset.samples]},
    )
    made = training(whole.args.output_dir, fused)
    resumed = trainer_of(made)
    resumed.train(resume_from_checkpoint=f"{whole.args.output_dir}/checkpoint-{step}")
    num_had = step // steps * num_packs + step % steps * 2
    assert ids(resumed.seen) == ids(whole.seen)[num_had:]
    later = flat(ids(whole.seen)[num_had:])
    assert sorted(dataset.read) == sorted(name for name in later if name.startswith("charts"))
    assert_equal_bits(weights(resumed), weights(whole))
    assert [t.epoch for t in made.callbacks[0].history][-1] == 1
    assert made.callbacks[0].history[-1].num_packs == len(made.train_dataset)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 2])
def test_training_with_workers_ends_with_the_same_weights(whole, step):
    made = training(whole.args.output_dir, dataloader_num_workers=2)
    shared = trainer_of(made)
    checkpoint = f"{whole.args.output_dir}/checkpoint-{step}" if step else None
    shared.train(resume_from_checkpoint=checkpoint)
    assert ids(shared.seen) == ids(whole.seen)[2 * step :]
    assert_equal_bits(weights(shared), weights(whole))
    assert [telemetry.num_packs for telemetry in made.callbacks[0].history] == [7, 7]


@pytest.mark.slow
def test_a_checkpoint_records_what_determines_the_packs(whole):
    folder = Path(whole.args.output_dir) / "checkpoint-2"
    plain = json.loads((folder / STATE_NAME).read_text())
    assert plain["global_step"] == 2
    assert plain["terms"]["packing_length"] == 128

    other = VisionPackingOptions(packing=True, packing_length=128, packing_buffer=8)
    trainer = trainer_of(training(folder.parent, options=other))
    with pytest.raises(InvalidState, match="packing_buffer is 16 in the state and 8 here"):
        trainer.train(resume_from_checkpoint=str(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ('{"format": "else"}', "its format is 'else'"),
        ('{"format": "quire.vision.training", "version": 99}', "has version 99.*upgrade"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_state_is_rejected(whole, tmp_path, text, message):
    """Faults 27 and 29."""
    copied = tmp_path / "checkpoint-2"
    shutil.copytree(Path(whole.args.output_dir) / "checkpoint-2", copied)
    (copied / STATE_NAME).write_text(text)
    trainer = trainer_of(training(tmp_path))
    with pytest.raises(InvalidState, match=message):
        trainer.train(resume_from_checkpoint=str(copied))


@pytest.mark.slow
def test_a_checkpoint_of_version_1_resumes_with_the_same_bits(whole, tmp_path):
    """Fault 29: version 1 did not record the scope, because it was always the buffer."""
    copied = tmp_path / "checkpoint-3"
    shutil.copytree(Path(whole.args.output_dir) / "checkpoint-3", copied)
    plain = json.loads((copied / STATE_NAME).read_text())
    for name in ("packing_scope", "seed", "plan"):
        del plain["terms"][name]
    del plain["checksum"]
    (copied / STATE_NAME).write_text(json.dumps({**plain, "version": 1}))
    resumed = trainer_of(training(tmp_path))
    resumed.train(resume_from_checkpoint=str(copied))
    assert_equal_bits(weights(resumed), weights(whole))


@pytest.mark.slow
def test_whole_epochs_of_several_limits_resume_with_the_same_bits(tmp_path):
    options = replace(OPTIONS, packing_max_images=3)
    first = trainer_of(training(tmp_path, options=options, save_strategy="steps", save_steps=1))
    first.train()
    checkpoint = tmp_path / "checkpoint-3"
    terms = json.loads((checkpoint / STATE_NAME).read_text())["terms"]
    assert (terms["packing_scope"], len(terms["plan"])) == ("epoch", 32)
    resumed = trainer_of(training(tmp_path, options=options))
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert ids(resumed.seen) == ids(first.seen)[-len(ids(resumed.seen)) :]
    assert 0 < len(resumed.seen) < len(first.seen)
    assert_equal_bits(weights(resumed), weights(first))
    other = trainer_of(training(tmp_path, options=replace(options, seed=1)))
    with pytest.raises(InvalidState, match="seed is 0 in the state and 1 here"):
        other.train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.slow
def test_a_checkpoint_of_another_folder_is_checked_there(whole, tmp_path):
    checkpoint = Path(whole.args.output_dir) / "checkpoint-3"
    resumed = trainer_of(training(tmp_path))
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert_equal_bits(weights(resumed), weights(whole))
    options = VisionPackingOptions(packing=True, packing_length=128, packing_buffer=15)
    with pytest.raises(InvalidState, match="packing_buffer is 16 in the state and 15 here"):
        trainer_of(training(tmp_path, options=options)).train(str(checkpoint))


@pytest.mark.slow
def test_weights_that_transformers_cannot_load_again_are_rejected(tmp_path):
    """transformers 5.22 saves Qwen2.5-VL under other names than its Trainer loads."""
    family, dataset = "qwen2_5_vl", encoded("charts", 24, "qwen2_5_vl")

    def trainer(fresh):
        others = {"num_train_epochs": 1, "save_strategy": "steps", "save_steps": 2}
        args = arguments(tmp_path, **others)
        made = configure_training(args, OPTIONS, train_dataset=dataset, model=fresh)
        return made.make_trainer(model=fresh)

    whole = trainer(copy.deepcopy(model(family)).train())
    whole.train()
    folder = tmp_path / "checkpoint-2"
    with pytest.raises(InvalidState, match=r"are not in the model.*from_pretrained"):
        trainer(copy.deepcopy(model(family))).train(resume_from_checkpoint=str(folder))

    moved = shutil.copytree(folder, tmp_path / "moved" / "checkpoint-2")
    shutil.rmtree(folder)
    with pytest.raises(InvalidState, match=r"are not in the model.*from_pretrained"):
        trainer(copy.deepcopy(model(family))).train(str(moved))
    folder = moved

    resumed = trainer(type(whole.model).from_pretrained(folder))
    resumed.train(resume_from_checkpoint=str(folder))
    assert whole.state.global_step > 2
    assert_equal_bits(weights(resumed), weights(whole))


def without_lengths():
    return [
        {name: value for name, value in sample.items() if name != "length"}
        for sample in encoded("charts", 24)
    ]


def test_unknown_lengths_need_max_steps(tmp_path):
    with pytest.raises(InvalidOption, match="max_steps is -1 and the number of packs is not known"):
        training(tmp_path, without_lengths())


@pytest.mark.slow
def test_unknown_lengths_train_for_max_steps_and_cannot_be_resumed(tmp_path):
    others = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2}
    trainer = trainer_of(training(tmp_path, without_lengths(), **others))
    trainer.train()
    assert trainer.state.global_step == 3
    again = trainer_of(training(tmp_path, without_lengths(), **others))
    with pytest.raises(InvalidState, match="at step 2, but lengths are not known"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


@pytest.mark.slow
def test_packs_that_workers_made_from_unknown_lengths_are_not_reported_as_zero(tmp_path, caplog):
    made = training(tmp_path, without_lengths(), max_steps=2, dataloader_num_workers=1)
    with caplog.at_level(logging.WARNING, "quire.vision"):
        trainer_of(made).train()
    assert made.callbacks[0].history == []
    assert "each has logged its own part" in caplog.text


@pytest.mark.slow
def test_max_steps_beyond_an_epoch_continue_with_the_next_one(tmp_path):
    made = training(tmp_path, max_steps=5)
    trainer = trainer_of(made)
    trainer.train()
    assert trainer.state.global_step == 5
    assert [telemetry.epoch for telemetry in made.callbacks[0].history] == [0, 1]


def rank_packs(world_size, rank, **others):
    packed = PackedVLDataset.from_options(
        fusion(), OPTIONS, rank=rank, world_size=world_size, **others
    )
    packs = TrainingPacks(packed, world_size)
    packs.equalize_epochs(3)
    return packs


def prepared(dataset, world_size, rank, **others):
    """The loader as accelerate makes it for a rank, without starting one."""
    loader = DataLoader(dataset, batch_size=1, collate_fn=list, **others)
    return prepare_data_loader(
        loader, num_processes=world_size, process_index=rank, dispatch_batches=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_accelerate_gives_every_rank_all_packs_of_its_own(world_size, num_workers):
    for epoch in range(2):
        seen, lengths = [], []
        for rank in range(world_size):
            packs = rank_packs(world_size, rank)
            loader = prepared(packs, world_size, rank, num_workers=num_workers)
            loader.set_epoch(epoch)
            mine = [[sample["id"] for sample in batch[0]] for batch in loader]
            packs.packed.set_epoch(epoch)
            assert mine == [[sample["id"] for sample in pack] for pack in packs.packed]
            seen += flat(mine)
            lengths.append((len(mine), len(loader)))
        assert len(seen) == len(set(seen))  # no sample on two ranks, none twice
        assert len(set(lengths)) == 1
        assert lengths[0][0] == lengths[0][1]


def test_packs_without_a_copy_per_rank_are_lost():
    """Negative control: accelerate keeps every second item of packs that belong to one rank."""
    packed = rank_packs(2, 0).packed
    kept = list(prepared(packed, 2, 0))
    assert len(kept) < len(packed)


@pytest.mark.slow
def test_two_ranks_of_a_real_run_train_on_all_samples_once_and_stay_in_sync(tmp_path):
    script = Path(__file__).with_name("ranks_of_a_trainer.py")
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    root = Path(__file__).resolve().parents[2]
    subprocess.run(
        [sys.executable, *launch, str(script), str(tmp_path)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}", "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert ranks[0]["steps"] == ranks[1]["steps"] == len(ranks[0]["seen"])
    assert ranks[0]["total"] == ranks[1]["total"]  # gradients were shared
    num_packs = ranks[0]["steps"] // 2
    for epoch in range(2):
        seen = [flat(r["seen"][epoch * num_packs : (epoch + 1) * num_packs]) for r in ranks]
        assert sorted(flat(seen)) == list(range(16))
