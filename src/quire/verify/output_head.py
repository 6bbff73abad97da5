"""A large vocabulary, examined on a sample of its columns.

Logits of 1,014 tokens over 151,936 ids take 616 MB, and their gradients as much again. The last
layer of a transformers model is linear and looks at each token by itself, so it cannot mix
documents, and any of its columns shows what reaches it. Only a plain `torch.nn.Linear` is sampled;
other models are examined on all their logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import functional

from quire.errors import ModelError
from quire.verify.calls import Call
from quire.verify.layout import Batch

NUM_COLUMNS = 4096


@contextmanager
def sampled_vocabulary(call: Call, batch: Batch) -> Iterator[None]:
    """The model with a last layer that computes `NUM_COLUMNS` of its columns, where it has more."""
    head = _plain_head(call.model)
    if head is None:
        yield
        return
    generator = torch.Generator().manual_seed(0)
    columns = torch.randperm(head.out_features, generator=generator)[:NUM_COLUMNS].sort().values

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        chosen = columns.to(head.weight.device)
        bias = None if head.bias is None else head.bias.detach()[chosen]
        return functional.linear(hidden, head.weight.detach()[chosen], bias)

    vars(head)["forward"] = forward
    try:
        if not _takes_effect(call, batch):
            del vars(head)["forward"]
        yield
    finally:
        vars(head).pop("forward", None)


def _plain_head(model: object) -> torch.nn.Linear | None:
    find = getattr(model, "get_output_embeddings", None)
    head = find() if callable(find) else None
    if type(head) is not torch.nn.Linear or "forward" in vars(head):
        return None
    whole = tuple(head.weight.shape) == (head.out_features, head.in_features)
    return head if whole and head.out_features > NUM_COLUMNS else None


def _takes_effect(call: Call, batch: Batch) -> bool:
    """Whether the model passes the sampled columns on as its logits."""
    try:
        return call.logits(batch).shape[-1] == NUM_COLUMNS
    except ModelError:
        return False
