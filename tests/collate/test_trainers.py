"""transformers' Trainer and TRL's SFTTrainer at their defaults, which drop `document_starts`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.utils.operations import concatenate, slice_tensors
from datasets import Dataset, disable_progress_bars
from tests.collate import dispatched_ranks
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

import quire
from quire.collate import DataCollatorForCausalLM
from quire.stream import TorchBatches
from quire.verify import check_isolation

NAMES = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
IDS = {name: number for number, name in enumerate(NAMES.values())}
SPECIALS = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(WordLevel(IDS, NAMES["pad_token"])), **NAMES
)
QUIET = {"report_to": "none", "disable_tqdm": True, "dataloader_pin_memory": False}
QUIET |= {"use_cpu": True, "bf16": False}

disable_progress_bars()


@pytest.fixture
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=259, **sizes, **heads))


def packed(**options) -> Dataset:
    texts = Dataset.from_dict({"text": ["word " * (n % 5 + 1) for n in range(24)]})
    return quire.pack_dataset(texts, "byte", max_length=48, **options)


def trainer_of(model, rows, folder, **options) -> Trainer:
    """A Trainer with one of our collators; everything else has the Trainer's default."""
    args = TrainingArguments(folder, per_device_train_batch_size=3, max_steps=2, **QUIET, **options)
    collator = DataCollatorForCausalLM(quire.ByteTokenizer())
    return Trainer(model=model, args=args, train_dataset=rows, data_collator=collator)


def first_batch(trainer) -> dict:
    return dict(next(iter(trainer.get_train_dataloader())))


def starts_of(batch) -> set[tuple[int, int]]:
    """Where the batch's positions restart at a document (BOS), by row."""
    bos = batch["input_ids"] == 1
    assert ((batch["position_ids"] == 0) == bos)[batch["labels"].ne(-100) | bos].all()
    return {tuple(place) for place in bos.nonzero().tolist()}


def test_a_trainer_with_default_arguments_warns_that_starts_are_lost(model, tmp_path):
    trainer = trainer_of(model, packed(), tmp_path)
    with pytest.warns(
        UserWarning, match=r"row 0 has EOS \(2\) inside.*remove_unused_columns=False"
    ):
        batch = first_batch(trainer)
    assert "position_ids" not in batch
    logits = model(**batch).logits
    batch["input_ids"][:, 1] += 1  # in every row's first document
    assert (model(**batch).logits != logits)[:, -1].any()


@pytest.mark.parametrize(
    ("columns", "arguments"),
    [({"position_ids": True}, {}), ({}, {"remove_unused_columns": False})],
    ids=["position_ids", "all columns"],
)
def test_a_trainer_keeps_documents_isolated(model, tmp_path, columns, arguments):
    trainer = trainer_of(model, packed(**columns), tmp_path, **arguments)
    batch = first_batch(trainer)
    assert len(starts_of(batch)) > 3
    assert check_isolation(model, batch).isolated


def test_boundary_columns_do_not_change_the_rows():
    rows = packed(position_ids=True, seq_lengths=True)
    assert rows.column_names == ["input_ids", "document_starts", "position_ids", "seq_lengths"]
    assert rows.select_columns(["input_ids", "document_starts"]).to_list() == packed().to_list()
    for row in rows:
        assert np.cumsum([0, *row["seq_lengths"]]).tolist()[:-1] == row["document_starts"]
        restarts = [place for place, position in enumerate(row["position_ids"]) if position == 0]
        assert restarts == row["document_starts"]
        assert max(row["position_ids"]) == max(row["seq_lengths"]) - 1


def sft_trainer(model, rows, folder, collator=None, **options):
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(folder, per_device_train_batch_size=3, max_steps=2, **QUIET, **options)
    return SFTTrainer(
        model=model,
        args=args,
        train_dataset=rows,
        data_collator=collator,
        processing_class=SPECIALS,
    )


def padding_free(model, folder):
    """TRL's own collator, which reads `seq_lengths`; it demands that max_length is None."""
    rows = packed(seq_lengths=True)
    return sft_trainer(model, rows, folder, padding_free=True, max_length=None)


def with_our_collator(model, folder):
    return sft_trainer(model, packed(seq_lengths=True), folder, DataCollatorForCausalLM(SPECIALS))


def with_positions(model, folder):
    return trainer_of(model, packed(position_ids=True), folder)


@pytest.mark.parametrize("make", [padding_free, with_our_collator])
def test_an_sft_trainer_keeps_documents_isolated(model, tmp_path, make):
    batch = first_batch(make(model, tmp_path))
    assert len(starts_of(batch)) > 3
    assert check_isolation(model, batch).isolated


def test_an_sft_trainer_with_default_arguments_warns_that_starts_are_lost(model, tmp_path):
    trainer = sft_trainer(model, packed(), tmp_path, DataCollatorForCausalLM(SPECIALS))
    with pytest.warns(UserWarning, match="no row of the batch has document_starts"):
        first_batch(trainer)


@pytest.mark.slow
@pytest.mark.parametrize("make", [padding_free, with_our_collator, with_positions])
def test_trainers_train_on_packed_rows(model, tmp_path, make):
    assert np.isfinite(make(model, tmp_path).train().training_loss)


# Several processes: accelerate reads an iterable dataset on one of them and dispatches its batches


def test_use_cache_of_a_batch_can_be_dispatched_to_several_processes(monkeypatch):
    row = {"input_ids": [5, 2, 6, 2], "document_starts": [0, 2]}
    collator = DataCollatorForCausalLM(quire.ByteTokenizer())
    for world, value in (("", False), ("1", False), ("2", ())):
        monkeypatch.setenv("WORLD_SIZE", world)
        assert collator([row])["use_cache"] == value
    batch = slice_tensors(concatenate([collator([row]), collator([row])]), slice(1, 2))
    assert batch["use_cache"] == () and batch["position_ids"].tolist() == [[0, 1, 0, 1]]


def expected_streaming_map(_folder) -> list:
    rows = list(dispatched_ranks.packed_texts())
    batches = [rows[first : first + 2] for first in range(0, len(rows), 2)]
    return [dispatched_ranks.collator()(batch)["input_ids"].tolist() for batch in batches]


def expected_stream(folder) -> list:
    given = iter(TorchBatches(dispatched_ranks.stream_config(folder)))
    return [next(given)["input_ids"].tolist() for _ in range(2 * dispatched_ranks.NUM_STEPS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [("streaming_map", expected_streaming_map), ("stream", expected_stream)],
)
def test_two_processes_train_on_dispatched_batches(tmp_path, name, expected):
    script = Path(dispatched_ranks.__file__)
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    root = script.parents[2]
    subprocess.run(
        [sys.executable, *launch, str(script), name, str(tmp_path)],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}", "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    batches = expected(tmp_path)
    for rank in range(2):
        found = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert found["tokens"] == batches[rank::2][: dispatched_ranks.NUM_STEPS]
        assert found["verdict"] == "isolated" and np.isfinite(found["loss"])
        assert found["use_cache"] == [False] * dispatched_ranks.NUM_STEPS
