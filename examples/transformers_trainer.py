"""Train on packed rows with transformers' Trainer.

    python examples/transformers_trainer.py
    python examples/transformers_trainer.py packed --tokenizer path/of/tokenizer.json

Without an argument, the rows are some functions of the standard library, as bytes; with one, those
that `quire pack` wrote to that folder.
"""

from __future__ import annotations

import tempfile

from datasets import Dataset
from standard_library import curve, open_model, open_rows, open_tokenizer, parse, proof
from transformers import Trainer, TrainingArguments

from quire.collate import DataCollatorForCausalLM

given = parse(__doc__)
rows, max_length = open_rows(given)

with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=open_model(given, max_length),
        args=TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=given.batch_size,
            num_train_epochs=given.epochs,
            max_steps=given.max_steps,
            learning_rate=given.learning_rate,
            logging_steps=2,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            # Otherwise document_starts, which no model has an argument for, never arrive.
            remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_list(rows) if isinstance(rows, list) else rows,
        data_collator=DataCollatorForCausalLM(open_tokenizer(given)),
    )
    # Batches as the Trainer itself makes them.
    print(proof(trainer.model, trainer.get_train_dataloader()))
    loss = trainer.train().training_loss
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"curve {curve([float(one) for one in logged] or [loss])}")
    print(f"mean loss {loss:.3f}")
