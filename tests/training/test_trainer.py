"""`attach`: what is checked before a Trainer's first step, its loss and its metrics per source."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import quire
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire.errors import InvalidOption, InvalidState
from quire.training import PackedLoss, SourceCollator, SourceMetrics, attach, document_metrics
from quire.training.checkpoint import last_checkpoint
from quire.training.trainer import STATE_NAME
from tests.training import layouts
from tests.training.test_data import COLLATE, stream

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")


WITH_IDS = ["input_ids", "document_starts", "document_ids"]


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=384, **sizes, **heads))


def trainer(folder, collate=COLLATE, dataset=None, owner=None, **options) -> Trainer:
    given = {
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 4,
        "save_steps": 2,
        "logging_steps": 2,
        "remove_unused_columns": False,
    }
    args = TrainingArguments(
        str(folder),
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        **(given | options),
    )
    return Trainer(model=owner or model(), args=args, data_collator=collate, train_dataset=dataset)


def loader(corpus, rows=4, **options):
    return quire.PackedDataset(corpus / "packed").loader(rows, seed=3, **options)


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({}, 8, r"global_batch makes 8 rows per step, but the trainer's are 4 .*2 × .*2 × 1 ranks"),
        ({"gradient_accumulation_steps": 3}, 4, "accumulation=3 does not divide"),
    ],
)
def test_batch_sizes_that_differ_are_an_error(corpus, tmp_path, options, rows, message):
    with pytest.raises(InvalidOption, match=message):
        attach(trainer(tmp_path, **options), loader(corpus, rows))


def test_the_rank_of_the_data_is_that_of_the_process(corpus, tmp_path):
    with pytest.raises(InvalidOption, match=r"rank 0 of 2 but this process is rank 0"):
        attach(trainer(tmp_path, gradient_accumulation_steps=1), loader(corpus, world_size=2))


def test_a_streams_microbatches_are_the_trainers(corpus, tmp_path):
    source = stream(corpus).source.batches
    with pytest.raises(InvalidOption, match=r"stream has 2 microbatches but gradient_acc"):
        attach(trainer(tmp_path, gradient_accumulation_steps=1), source)
    with pytest.raises(InvalidOption, match="makes 4 rows per step, but the trainer's are 8"):
        attach(trainer(tmp_path, per_device_train_batch_size=4), source)


def test_a_collator_that_is_replaced_afterwards_is_an_error_before_the_first_step(corpus, tmp_path):
    given = trainer(tmp_path)
    attach(given, loader(corpus))
    given.data_collator = forgetful
    with pytest.raises(InvalidOption, match=r"replaced after .*attach .*by function"):
        given.train()
    assert given.state.global_step == 0


def forgetful(rows) -> dict:
    """A collator of the kind that knows nothing of packing."""
    batch = COLLATE(rows)
    return {name: batch[name] for name in ("input_ids", "labels")}


def broken(rows) -> dict:
    return {}[len(rows) - 2]


def masking(rows) -> dict:
    batch = COLLATE(rows)
    return {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}


def merging(rows) -> dict:
    batch = COLLATE(rows)
    width = batch["input_ids"].shape[1]
    return {**batch, "position_ids": torch.arange(width).expand(len(rows), width)}


@pytest.mark.parametrize(
    ("collate", "message"),
    [
        (
            forgetful,
            "forgetful gives no position_ids, so documents would see each other; pass data_coll",
        ),
        (masking, "masking adds a 2-D attention_mask"),
        (merging, r"merging marks 2 of \d+ documents"),
        (None, "default_data_collator gives no position_ids"),
        (broken, r"broken cannot collate packed rows \(0\); pass data_collator="),
    ],
)
def test_a_collator_that_mixes_documents_is_an_error_before_the_first_step(
    corpus, tmp_path, collate, message
):
    with pytest.raises(InvalidOption, match=message):
        attach(trainer(tmp_path, collate), loader(corpus))


@pytest.mark.parametrize("attention", ["transformers", "sdpa", "varlen", "flat"])
def test_the_collators_of_quire_pass_the_check(corpus, tmp_path, attention):
    collate = PaddingFreeCollator(quire.ByteTokenizer())
    if attention != "flat":
        collate = DataCollatorForCausalLM(quire.ByteTokenizer(), attention=attention)
    attach(trainer(tmp_path, collate), loader(corpus))


def test_a_replaced_collator_of_a_plain_dataset_is_an_error_too(tmp_path):
    rows = Dataset.from_list([{"input_ids": [1, 5, 1, 6], "document_starts": [0, 2]}] * 8)
    with pytest.raises(InvalidOption, match="forgetful gives no position_ids"):
        attach(trainer(tmp_path, forgetful, rows))


def test_attaching_twice_is_an_error(corpus, tmp_path):
    given = trainer(tmp_path)
    attach(given, loader(corpus))
    with pytest.raises(InvalidOption, match="attached already"):
        attach(given, loader(corpus))


def test_arguments_that_make_a_resume_inexact_are_warned_of(corpus, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "quire.training"):
        attach(trainer(tmp_path, save_only_model=True), loader(corpus))
    assert "save_only_model leaves optimizer and random state out" in caplog.text


@pytest.fixture(scope="module")
def checkpoints(corpus, tmp_path_factory):
    """A run of four steps on a loader, saved after two and four."""
    folder = tmp_path_factory.mktemp("run")
    given = trainer(folder)
    attach(given, loader(corpus))
    given.train()
    return folder


def resume(given, source, checkpoint) -> None:
    attach(given, source)
    given.train(resume_from_checkpoint=str(checkpoint))


def test_a_checkpoint_holds_the_position_in_the_data(checkpoints):
    saved = json.loads((checkpoints / "checkpoint-2" / STATE_NAME).read_text())
    assert saved["global_step"] == 2 and saved["batch"] == {"rows_per_step": 4}
    assert saved["data"]["position"]["place"]["step"] == 2


def test_a_checkpoint_of_other_data_or_another_batch_is_refused(checkpoints, corpus, tmp_path):
    first = checkpoints / "checkpoint-2"
    with pytest.raises(InvalidState, match="rows_per_step is 4 in the state and 8 here"):
        resume(trainer(tmp_path, gradient_accumulation_steps=4), loader(corpus, 8), first)
    with pytest.raises(InvalidState, match="state is of a loader of packed rows but this is a str"):
        resume(trainer(tmp_path), stream(corpus).source.batches, first)
    rows = [dict(quire.PackedDataset(corpus / "packed")[0])] * 8
    with pytest.raises(InvalidState, match="the state's terms are NoneType"):
        resume(trainer(tmp_path, dataset=rows), None, first)


def test_another_accumulation_of_the_same_batch_may_resume(checkpoints, corpus, tmp_path):
    given = trainer(tmp_path, gradient_accumulation_steps=1, per_device_train_batch_size=4)
    resume(given, loader(corpus), checkpoints / "checkpoint-2")
    assert given.state.global_step == 4


def test_a_checkpoint_without_data_or_a_damaged_one_is_refused(checkpoints, corpus, tmp_path):
    import shutil

    copied = shutil.copytree(checkpoints / "checkpoint-2", tmp_path / "checkpoint-2")
    file = copied / STATE_NAME
    text = file.read_text()
    for changed, message in (
        (text.replace('"rows_per_step": 4', '"rows_per_step": 5'), "was damaged or changed"),
        (text[:100], "is damaged"),
        (None, f"has no {STATE_NAME}: it was saved without quire.training.attach"),
    ):
        file.unlink()
        if changed is not None:
            file.write_text(changed)
        with pytest.raises(InvalidState, match=message):
            resume(trainer(tmp_path), loader(corpus), copied)


def test_the_last_complete_checkpoint_is_resumed(tmp_path):
    for step in (2, 10, 9):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if step != 10:  # killed while it was written
            (tmp_path / f"checkpoint-{step}" / STATE_NAME).write_text("{}")
    assert last_checkpoint(tmp_path, STATE_NAME) == tmp_path / "checkpoint-9"
    assert last_checkpoint(tmp_path / "none", STATE_NAME) is None


def test_a_plain_dataset_of_rows_is_recorded_and_compared(corpus, tmp_path):
    rows = quire.PackedDataset(corpus / "packed")
    given = trainer(tmp_path, dataset=rows)
    attach(given)
    given.train()
    again = trainer(tmp_path, dataset=rows, data_seed=7)
    with pytest.raises(InvalidState, match="seed is 42 in the state and 7 here"):
        resume(again, None, tmp_path / "checkpoint-2")
    resume(trainer(tmp_path, dataset=rows), None, tmp_path / "checkpoint-2")


def trained_on(given, source, checkpoint=None) -> list[list[int]]:
    found = []

    def note(_, __, keywords) -> None:
        found.append(keywords["input_ids"].flatten().tolist())

    given.model.register_forward_pre_hook(note, with_kwargs=True)
    attach(given, source)
    given.train(resume_from_checkpoint=checkpoint)
    return found


def test_a_stream_that_begins_again_resumes_in_its_second_pass(corpus, tmp_path):
    one_pass = len(list(stream(corpus))) // 2
    steps = {"max_steps": one_pass + 5, "save_steps": one_pass + 2}
    whole = trained_on(trainer(tmp_path, **steps), stream(corpus).source.batches)
    saved = tmp_path / f"checkpoint-{one_pass + 2}"
    again = trainer(tmp_path / "again", **steps)
    resumed = trained_on(again, stream(corpus).source.batches, str(saved))
    assert len(resumed) == 6 and resumed == whole[-6:]


def test_metrics_per_source_are_those_of_each_source_trained_separately(corpus, tmp_path):
    owner = model()
    rows = quire.PackedDataset(corpus / "packed", columns=WITH_IDS)
    collate = SourceCollator(collate=COLLATE, source_of=lambda ids: ids % 2)
    metrics = SourceMetrics(names=("even", "odd"))
    given = trainer(tmp_path, collate, owner=owner, learning_rate=0.0, logging_steps=4)
    attach(given, rows.loader(4, seed=3), metrics=metrics)
    given.train()
    logged = [entry for entry in given.state.log_history if "loss" in entry][-1]
    sums, order = np.zeros((2, 3)), loader(corpus)
    for step in range(4):
        for number in order.rows(0, step).tolist():
            row = rows[number]
            batch = COLLATE([row])
            logits = owner.eval()(**batch).logits.detach()
            found = document_metrics(logits, batch)
            for place, document in enumerate(row["document_ids"]):
                targets = found.num_targets[place]
                if targets:
                    both = (found.loss[place] * targets, found.token_acc[place] * targets, targets)
                    sums[document % 2] += both
    for source, name in enumerate(("even", "odd")):
        assert logged[f"loss/{name}"] == pytest.approx(sums[source, 0] / sums[source, 2], rel=1e-5)
        assert logged[f"token_acc/{name}"] == pytest.approx(sums[source, 1] / sums[source, 2])
    assert logged["loss"] == pytest.approx(sums[:, 0].sum() / sums[:, 2].sum(), rel=1e-5)


def test_metrics_of_documents_are_those_of_each_document_by_itself():
    owner = layouts.model()
    for layout in ("packed", "padding_free"):
        batch = layouts.microbatches(layout, 1)[0]
        found = document_metrics(owner(**layouts.inputs(batch)).logits, batch)
        kept = [value for value in found.loss if not np.isnan(value)]
        expected = []
        for row in layouts.documents():
            for document in row:
                one = layouts.padded([document])
                total = PackedLoss().denominator([one])
                if total:
                    logits = owner(**layouts.inputs(one)).logits.detach()
                    expected.append(float(PackedLoss()(logits, one, total)))
        assert kept == pytest.approx(expected, abs=1e-10)


def test_metrics_without_sources_in_the_batch_are_an_error(corpus, tmp_path):
    given = trainer(tmp_path)
    attach(given, loader(corpus), metrics=SourceMetrics(names=("a",)))
    with pytest.raises(InvalidOption, match=r"batches have no source_ids; wrap the collator"):
        given.train()


def test_sources_beyond_the_names_are_an_error(corpus, tmp_path):
    collate = SourceCollator(collate=COLLATE, source_of=lambda ids: ids)
    given = trainer(tmp_path, collate)
    rows = quire.PackedDataset(corpus / "packed", columns=WITH_IDS)
    attach(given, rows.loader(4), metrics=SourceMetrics(names=("a",)))
    with pytest.raises(InvalidOption, match=r"a token has source \d+ but there are names for 1"):
        given.train()


class Killed(BaseException):
    pass


def test_a_run_that_is_killed_while_it_saves_keeps_the_checkpoint_before(
    corpus, tmp_path, monkeypatch
):
    from quire.training import trainer as module

    write = module.write_state

    def dying(path, body) -> None:
        if path.parent.name == "checkpoint-4":
            raise Killed
        write(path, body)

    monkeypatch.setattr(module, "write_state", dying)
    with pytest.raises(Killed):
        trained_on(trainer(tmp_path, save_total_limit=1), loader(corpus))
    monkeypatch.undo()
    whole = trained_on(trainer(tmp_path / "whole"), loader(corpus))
    resumed = trained_on(trainer(tmp_path, save_total_limit=1), loader(corpus), True)
    assert resumed == whole[4:]
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]


def test_the_best_checkpoint_is_kept_beside_the_newest(corpus, tmp_path):
    given = trainer(tmp_path, save_total_limit=2, max_steps=6)
    attach(given, loader(corpus))
    save = given._save_checkpoint

    def saving(*args) -> None:
        save(*args)
        given.state.best_model_checkpoint = str(tmp_path / "checkpoint-2")

    given._save_checkpoint = saving
    given.train()
    kept = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert kept == ["checkpoint-2", "checkpoint-6"] and given.args.save_total_limit == 2


def test_packs_are_not_attached(corpus, tmp_path):
    from tests.training.test_data import packs

    with pytest.raises(InvalidOption, match=r"attach takes no PackedVLDataset; use .*make_trainer"):
        attach(trainer(tmp_path), packs(corpus).source.packed)


def test_a_batch_size_that_the_trainer_would_change_is_an_error(corpus, tmp_path):
    with pytest.raises(InvalidOption, match=r"auto_find_batch_size starts over .* set it to False"):
        attach(trainer(tmp_path, auto_find_batch_size=True), loader(corpus))


@pytest.mark.parametrize("kind", ["datasets", "quire"])
def test_columns_that_the_trainer_removes_are_an_error(corpus, tmp_path, kind):
    rows = quire.PackedDataset(corpus / "packed")
    if kind == "datasets":
        names = ("input_ids", "document_starts")
        plain = [{name: rows[n][name].tolist() for name in names} for n in range(8)]
        rows = Dataset.from_list(plain)
    given = trainer(tmp_path, dataset=rows, remove_unused_columns=True)
    with pytest.raises(InvalidOption, match="set remove_unused_columns=False, as the Trainer rem"):
        attach(given)
    attach(trainer(tmp_path, remove_unused_columns=True), loader(corpus))  # keeps all columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_sampling_strategy": "sequential"}, "sampling is 'random' in the state and 'seq"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last is False in the state and True"),
    ],
)
def test_another_order_of_a_plain_dataset_is_refused(corpus, tmp_path, options, message):
    rows = quire.PackedDataset(corpus / "packed")
    trained_on(trainer(tmp_path, dataset=rows), None)
    with pytest.raises(InvalidState, match=message):
        resume(trainer(tmp_path, dataset=rows, **options), None, tmp_path / "checkpoint-2")


def test_another_list_of_as_many_rows_is_refused(corpus, tmp_path):
    packed = quire.PackedDataset(corpus / "packed")
    rows = [dict(packed[number]) for number in range(16)]
    trained_on(trainer(tmp_path, dataset=rows), None)
    with pytest.raises(InvalidState, match="dataset is '"):
        resume(trainer(tmp_path, dataset=rows[::-1]), None, tmp_path / "checkpoint-2")
    again = [dict(packed[number]) for number in range(16)]
    resume(trainer(tmp_path, dataset=again), None, tmp_path / "checkpoint-2")


def test_a_model_that_takes_its_own_mean_is_warned_of(corpus, tmp_path, caplog):
    owner = model()
    owner.accepts_loss_kwargs = False  # as those of Qwen-VL
    for averaging, accumulation in (("token", 2), (None, 1), (None, 2)):
        caplog.clear()
        rows = {"gradient_accumulation_steps": accumulation}
        rows["per_device_train_batch_size"] = 4 // accumulation
        with caplog.at_level(logging.WARNING, "quire.training"):
            attach(trainer(tmp_path, owner=owner, **rows), loader(corpus), averaging=averaging)
        is_warned = (
            "LlamaForCausalLM divides the loss of every microbatch by its own" in caplog.text
        )
        assert is_warned == (averaging is None and accumulation > 1)
