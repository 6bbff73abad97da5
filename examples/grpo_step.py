"""GRPO-style updates on packed rollouts: the same loss and gradients as one rollout at a time.

Two ranks are simulated in one process: each runs its own rows, micro-step by micro-step, and their
gradients are added up, as an all-reduce would.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import quire

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=3, help="training steps (3)")
steps = parser.parse_args().steps

RANKS, MAX_LENGTH, PROMPTS, SAMPLES = 2, 64, 4, 4
torch.manual_seed(0)
rng = np.random.default_rng(0)
# A model that computes in double precision throughout; others round in their norms.
config = GPT2Config(
    vocab_size=64, n_positions=MAX_LENGTH, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
    eos_token_id=0,
)  # fmt: skip
model = GPT2LMHeadModel(config).double().eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)


def log_probs(rows, positions):
    """The log-probability of each token of a row given those before it; 0 for the first one."""
    # Positions that restart keep sequences apart; with a cache or a mask they would not.
    logits = model(input_ids=rows[None], position_ids=positions[None], use_cache=False).logits[0]
    chosen = logits[:-1].log_softmax(-1).gather(-1, rows[1:, None])[:, 0]
    return torch.cat([chosen.new_zeros(1), chosen])


def grpo_loss(new, old, advantages, weights):
    """The clipped objective of each token, weighted so that its sum over the step is the mean."""
    ratio = (new - old).exp()
    clipped = ratio.clamp(0.8, 1.2)
    return -(torch.minimum(ratio * advantages, clipped * advantages) * weights).sum()


def gradients(backward):
    """What `backward` accumulates, and the loss that it returns."""
    optimizer.zero_grad()
    loss = backward()
    return loss, torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


for step in range(steps):
    # Rollouts: prompts of 4 tokens and completions of any length; even tokens are rewarded.
    lengths = np.minimum(rng.lognormal(3, 0.6, PROMPTS * SAMPLES).astype(int) + 6, MAX_LENGTH)
    rollouts = [torch.as_tensor(rng.integers(0, 64, length)) for length in lengths]
    rewards = torch.tensor([(r[4:] % 2 == 0).double().mean() for r in rollouts])
    by_prompt = rewards.view(PROMPTS, SAMPLES)
    advantages = ((by_prompt - by_prompt.mean(1, True)) / (by_prompt.std(1, True) + 1e-4)).flatten()
    completion = np.concatenate([np.arange(length) >= 4 for length in lengths])

    # Every rank computes the same plan from the lengths alone.
    plan = quire.pack_step(lengths, max_length=MAX_LENGTH, num_ranks=RANKS, cost=config)
    weights = torch.as_tensor(plan.loss_weights("sequences", mask=completion))
    per_token = torch.repeat_interleave(advantages, torch.as_tensor(lengths))

    def packed_log_probs(plan=plan, rollouts=rollouts):
        rows = [
            [
                log_probs(
                    plan.gather(rollouts, rank, micro_step),
                    torch.as_tensor(plan.position_ids(rank, micro_step)),
                )
                for micro_step in range(plan.num_micro_steps)
            ]
            for rank in range(plan.num_ranks)
        ]
        return plan.unpack(rows)

    with torch.no_grad():
        old = packed_log_probs() + 0.1 * torch.randn(int(lengths.sum()))
        alone = torch.cat([log_probs(r, torch.arange(len(r))) for r in rollouts])
        first = torch.as_tensor(np.cumsum(lengths) - lengths)
        # The first token of a sequence has no log-probability; weights leave prompts out anyway.
        keep = torch.ones(int(lengths.sum()), dtype=torch.bool).index_fill(0, first, value=False)
        worst = (packed_log_probs() - alone)[keep].abs().max().item()

    def packed(plan=plan, rollouts=rollouts, old=old, per_token=per_token, weights=weights):
        total = 0.0
        for rank in range(plan.num_ranks):  # on a cluster: your rank only, then all-reduce
            for micro_step in range(plan.num_micro_steps):
                ids = plan.gather(rollouts, rank, micro_step)
                positions = torch.as_tensor(plan.position_ids(rank, micro_step))
                rows = [plan.gather(v, rank, micro_step) for v in (old, per_token, weights)]
                loss = grpo_loss(log_probs(ids, positions), *rows)
                loss.backward()
                total += loss.item()
        return total

    def unpacked(lengths=lengths, rollouts=rollouts, old=old, advantages=advantages):
        total = 0.0
        parts = zip(rollouts, old.split(lengths.tolist()), advantages, strict=True)
        for ids, before, advantage in parts:
            count = len(ids) - 4
            mask = (torch.arange(len(ids)) >= 4).double() / count / len(rollouts)
            new = log_probs(ids, torch.arange(len(ids)))
            loss = grpo_loss(new, before, advantage, mask)
            loss.backward()
            total += loss.item()
        return total

    expected, expected_gradient = gradients(unpacked)
    loss, gradient = gradients(packed)
    apart = (gradient - expected_gradient).abs().max().item()
    if worst > 1e-12 or abs(loss - expected) > 1e-10 or apart > 1e-10:
        raise SystemExit(f"log-probs differ by {worst}, gradients by {apart}: {loss}, {expected}")
    optimizer.step()
    print(plan)
    print(f"step {step}: loss {loss:.6f}, gradients differ by {apart:.0e}, log-probs {worst:.0e}")
print("packed and unpacked updates are the same")
