"""Small models of our own, each with one property that the check must see."""

from __future__ import annotations

import torch

from quire.masks.dense import bool_mask

WIDTH = 8


class Averager(torch.nn.Module):
    """Each token's logits are a mean over its past: within its document if segment ids are given.

    `leak` is a constant times the mean of the first token of each row, for all tokens of the batch.
    """

    def __init__(self, leak: float = 0.0, detached: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(64, WIDTH)
        self.dropout = torch.nn.Dropout(dropout)
        self.leak, self.detached = leak, detached

    def forward(self, input_ids, segment_ids):
        embedded = self.table(input_ids)
        weights = bool_mask(segment_ids)[:, 0].to(embedded.dtype)
        mean = (weights / weights.sum(-1, keepdim=True)) @ embedded
        first = embedded[:, :1].mean()
        return self.dropout(mean) + self.leak * (first.detach() if self.detached else first)


class RunningSSM(torch.nn.Module):
    """A state that decays from token to token, and restarts where `seq_idx` changes."""

    def __init__(self, reads_seq_idx: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(64, WIDTH)
        self.reads_seq_idx = reads_seq_idx

    def forward(self, input_ids, position_ids=None, seq_idx=None):
        embedded, states = self.table(input_ids), []
        state = torch.zeros_like(embedded[:, 0])
        for token in range(input_ids.shape[1]):
            if token and seq_idx is not None and self.reads_seq_idx:
                continues = seq_idx[:, token] == seq_idx[:, token - 1]
                state = torch.where(continues[:, None], state, torch.zeros_like(state))
            state = 0.5 * state + embedded[:, token]
            states.append(state)
        return torch.stack(states, dim=1)


class BatchMixer(torch.nn.Module):
    """Means within documents, then something that depends on the whole batch.

    `experts` drop tokens over a capacity that all documents share, without any gradient (of
    ``training_factor`` times an even share in training mode, where that is given, and then only
    there); `norm` is a BatchNorm, whose training mode takes its statistics from the batch.
    """

    def __init__(self, kind: str, training_factor: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.training_factor = kind, training_factor
        self.table = torch.nn.Embedding(64, 32)
        self.norm = torch.nn.BatchNorm1d(32)
        self.router = torch.nn.Linear(32, 4)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))
        self.head = torch.nn.Linear(32, 64)

    def forward(self, input_ids, segment_ids):
        embedded = self.table(input_ids)
        weights = bool_mask(segment_ids)[:, 0].to(embedded.dtype)
        mean = (weights / weights.sum(-1, keepdim=True)) @ embedded
        flat = (embedded + mean).flatten(0, 1)
        if self.kind == "norm":
            return self.head(self.norm(flat)).unflatten(0, input_ids.shape)
        chosen, added = self.router(flat).argmax(-1), torch.zeros_like(flat)
        capacity = len(flat) // 4
        if self.training_factor is not None:
            capacity = int(capacity * self.training_factor) if self.training else len(flat)
        for number, expert in enumerate(self.experts):
            taken = (chosen == number).nonzero()[:, 0][:capacity]
            added = added.index_put((taken,), expert(flat[taken]))
        return self.head(flat + 0.3 * added).unflatten(0, input_ids.shape)
