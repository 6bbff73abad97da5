"""Train on packed rows with TRL's SFTTrainer; the rows are quire's, so TRL packs nothing.

python examples/trl_sft.py
python examples/trl_sft.py packed --tokenizer path/of/tokenizer
"""

from __future__ import annotations

import tempfile

from datasets import Dataset
from standard_library import curve, open_model, open_rows, open_tokenizer, parse, proof
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from quire.collate import DataCollatorForCausalLM

given = parse(__doc__)
rows, max_length = open_rows(given)
# SFTTrainer takes a datasets.Dataset and nothing else; that of a packed folder is memory-mapped.
dataset = Dataset.from_list(rows) if isinstance(rows, list) else rows.to_datasets()
if given.tokenizer:
    tokenizer = AutoTokenizer.from_pretrained(given.tokenizer)
else:
    # TRL wants a tokenizer of transformers; for rows of tokens it asks only for the special ones.
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<pad>": 0, "<s>": 1, "</s>": 2}, unk_token="<pad>")),
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
    )

with tempfile.TemporaryDirectory() as folder:
    trainer = SFTTrainer(
        model=open_model(given, max_length),
        args=SFTConfig(
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
            bf16=False,
            gradient_checkpointing=False,
            packing=False,
            dataset_kwargs={"skip_prepare_dataset": True},
            # Otherwise document_starts, which TRL does not know, never arrive.
            remove_unused_columns=False,
        ),
        train_dataset=dataset,
        data_collator=DataCollatorForCausalLM(open_tokenizer(given)),
        processing_class=tokenizer,
    )
    print(proof(trainer.model, trainer.get_train_dataloader()))
    loss = trainer.train().training_loss
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"curve {curve([float(one) for one in logged] or [loss])}")
    print(f"mean loss {loss:.3f}")
