"""Train on packed rows with transformers' Trainer."""

from __future__ import annotations

import tempfile

from datasets import Dataset
from standard_library import Bytes, documents, pack, tiny_llama
from transformers import Trainer, TrainingArguments

from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation

MAX_LENGTH = 256

rows = pack(documents(48, MAX_LENGTH), MAX_LENGTH)

with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=tiny_llama(MAX_LENGTH),
        args=TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            num_train_epochs=2,
            learning_rate=3e-3,
            logging_steps=2,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            # Otherwise document_starts, which no model has an argument for, never arrive.
            remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_list(rows),
        data_collator=DataCollatorForCausalLM(Bytes()),
    )
    # The batch as the Trainer itself makes it.
    batch = next(iter(trainer.get_train_dataloader()))
    report = check_isolation(trainer.model, batch)
    print(f"{report.num_documents} documents in the first batch: {report.verdict}")
    print(f"loss {trainer.train().training_loss:.3f}")
