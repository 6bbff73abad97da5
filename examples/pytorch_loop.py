"""Train on packed rows in a plain PyTorch loop, after proving that documents stay apart.

python examples/pytorch_loop.py
python examples/pytorch_loop.py packed --tokenizer path/of/tokenizer.json
"""

from __future__ import annotations

from itertools import islice

import torch
from standard_library import curve, open_model, open_rows, open_tokenizer, parse, proof
from torch.utils.data import DataLoader

from quire.collate import DataCollatorForCausalLM

given = parse(__doc__)
rows, max_length = open_rows(given)
model = open_model(given, max_length)

collate = DataCollatorForCausalLM(open_tokenizer(given))
batches = DataLoader(rows, batch_size=given.batch_size, collate_fn=collate)
print(proof(model, batches))  # once, on the very call that the loop makes
optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate)
losses: list[float] = []
for epoch in range(given.epochs):
    for batch in islice(batches, None if given.max_steps < 0 else given.max_steps - len(losses)):
        # All of the batch, as it is: an attention_mask, or a cache, would mix documents.
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {loss.item():.3f}")
print(f"curve {curve(losses)}")
