"""Train on packed rows in a plain PyTorch loop, after proving that documents stay apart."""

from __future__ import annotations

import torch
from standard_library import TOKENIZER, documents, pack, tiny_llama
from torch.utils.data import DataLoader

from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation

MAX_LENGTH = 256

rows = pack(documents(48, MAX_LENGTH), MAX_LENGTH)
model = tiny_llama(MAX_LENGTH)

# The proof, once, on the very call that the loop makes.
report = check_isolation(model, rows[:4])
print(f"{report.num_documents} documents in the first four rows: {report.verdict}")

batches = DataLoader(rows, batch_size=4, collate_fn=DataCollatorForCausalLM(TOKENIZER))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(2):
    for batch in batches:
        # All of the batch, as it is: an attention_mask, or a cache, would mix documents.
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
