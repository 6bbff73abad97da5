"""Train on packed rows with transformers' Trainer.

Without an argument, on some functions of the standard library; or on what the command packed with
bytes: `quire pack corpus --out packed --tokenizer byte --max-length 1024`, then
`python examples/transformers_trainer.py packed`.
"""

from __future__ import annotations

import sys
import tempfile

from datasets import Dataset
from standard_library import TOKENIZER, documents, pack, tiny_llama
from transformers import Trainer, TrainingArguments

from quire import PackedDataset
from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation

if len(sys.argv) > 1:
    rows = PackedDataset(sys.argv[1])
    max_length = rows.max_length
else:
    max_length = 256
    rows = Dataset.from_list(pack(documents(48, max_length), max_length))

with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=tiny_llama(max_length),
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
        train_dataset=rows,
        data_collator=DataCollatorForCausalLM(TOKENIZER),
    )
    # The batch as the Trainer itself makes it.
    batch = next(iter(trainer.get_train_dataloader()))
    report = check_isolation(trainer.model, batch)
    print(f"{report.num_documents} documents in the first batch: {report.verdict}")
    print(f"loss {trainer.train().training_loss:.3f}")
