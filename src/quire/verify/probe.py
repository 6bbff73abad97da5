"""Trying a causal language model on rows of random tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from quire.verify.isolation import check_isolation
from quire.verify.options import CallOptions, IsolationOptions, ProbeOptions
from quire.verify.report import IsolationReport
from quire.verify.rows import collate


def check_call(
    model: torch.nn.Module,
    call: CallOptions,
    probe: ProbeOptions,
    options: IsolationOptions | None = None,
) -> IsolationReport:
    """The isolation report of a transformers model for a call with packed rows."""
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    rows = packed_rows(table.num_embeddings, probe)
    segments = collate(rows, "segments")["segment_ids"]
    batch = collate(rows, call.attention)
    if call.with_attention_mask:
        batch["attention_mask"] = (segments > 0).long()
    if call.use_cache is not None:
        batch["use_cache"] = call.use_cache
    return check_isolation(model, batch, segment_ids=segments, options=options)


def packed_rows(vocab_size: int, probe: ProbeOptions) -> list[dict[str, object]]:
    """Rows of random tokens, in documents of 1 to 16 of them."""
    generator = np.random.default_rng(probe.seed)
    rows: list[dict[str, object]] = []
    for _ in range(probe.num_rows):
        lengths = generator.integers(1, 17, probe.documents_per_row)
        tokens = generator.integers(0, vocab_size, lengths.sum())
        rows.append({"input_ids": tokens, "document_starts": np.cumsum(lengths) - lengths})
    return rows
