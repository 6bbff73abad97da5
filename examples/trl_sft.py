"""Train on packed rows with TRL's SFTTrainer; the rows are quire's, so TRL packs nothing."""

from __future__ import annotations

import tempfile

from datasets import Dataset
from standard_library import documents, pack, tiny_llama
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation

MAX_LENGTH = 256

# TRL wants a tokenizer of transformers; for rows of tokens it asks for the special ones alone.
special_tokens = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2}, unk_token="<pad>")),
    pad_token="<pad>",
    bos_token="<s>",
    eos_token="</s>",
)
rows = pack(documents(48, MAX_LENGTH), MAX_LENGTH)

with tempfile.TemporaryDirectory() as folder:
    trainer = SFTTrainer(
        model=tiny_llama(MAX_LENGTH),
        args=SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=4,
            num_train_epochs=2,
            learning_rate=3e-3,
            logging_steps=2,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
            bf16=False,
            gradient_checkpointing=False,
            packing=False,
            dataset_kwargs={"skip_prepare_dataset": True},
            # Otherwise document_starts, which TRL does not know, never arrive.
            remove_unused_columns=False,
        ),
        train_dataset=Dataset.from_list(rows),
        data_collator=DataCollatorForCausalLM(special_tokens),
        processing_class=special_tokens,
    )
    batch = next(iter(trainer.get_train_dataloader()))
    report = check_isolation(trainer.model, batch)
    print(f"{report.num_documents} documents in the first batch: {report.verdict}")
    print(f"loss {trainer.train().training_loss:.3f}")
