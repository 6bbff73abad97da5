"""Train on packed rows in a plain PyTorch loop, after proving that documents stay apart.

python examples/pytorch_loop.py
python examples/pytorch_loop.py packed --tokenizer path/of/tokenizer.json
"""

from __future__ import annotations

import torch
from standard_library import curve, open_model, open_rows, open_tokenizer, parse
from torch.utils.data import DataLoader

from quire.collate import DataCollatorForCausalLM
from quire.verify import check_isolation

given = parse(__doc__)
rows, max_length = open_rows(given)
model = open_model(given, max_length)

# The proof, once, on the very call that the loop makes.
few = 1 if given.tokenizer else 4  # a large vocabulary makes the proof slow
report = check_isolation(model, [rows[number] for number in range(min(few, len(rows)))])
print(f"{report.num_documents} documents in the first rows: {report.verdict}")

collate = DataCollatorForCausalLM(open_tokenizer(given))
batches = DataLoader(rows, batch_size=given.batch_size, collate_fn=collate)
optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate)
losses = []
for epoch in range(given.epochs):
    for batch in batches:
        # All of the batch, as it is: an attention_mask, or a cache, would mix documents.
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {loss.item():.3f}")
print(f"curve {curve(losses)}")
