"""Pack a whole Hugging Face dataset of text, and train a tiny model on its rows."""

from __future__ import annotations

import argparse

import torch
from datasets import Dataset
from standard_library import tiny_llama
from torch.utils.data import DataLoader

import quire
from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation

MAX_LENGTH = 256

argparse.ArgumentParser(description=__doc__).parse_args()
texts = [(function.__doc__ or "").strip() for function in vars(str).values()]
dataset = Dataset.from_dict({"text": [text for text in texts if text]})

rows, ledger = quire.pack_dataset(dataset, "byte", max_length=MAX_LENGTH, return_ledger=True)
filled = 1 - ledger.tokens.padding / (len(rows) * MAX_LENGTH)
print(f"{len(dataset)} documents in {len(rows)} rows, {filled:.1%} full")
print(f"{ledger.tokens.input} tokens in, {ledger.tokens.emitted} out")

model = tiny_llama(MAX_LENGTH)
collator = DataCollatorForCausalLM(quire.ByteTokenizer())
batches = DataLoader(rows, batch_size=4, collate_fn=collator)
report = check_isolation(model, next(iter(batches)))
print(f"{report.num_documents} documents in the first batch: {report.verdict}")

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(2):
    for batch in batches:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
