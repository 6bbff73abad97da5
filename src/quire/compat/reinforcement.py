"""One training step under the names of RL systems, planned by `quire.pack_step`.

Replacements for verl's `rearrange_micro_batches` and `get_seqlen_balanced_partitions`, NeMo-RL's
`get_packer`, and for the padded forward pass of TRL's GRPOTrainer. They take and return what the
originals do; the rows are quire's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import distributed

from quire.errors import InvalidOption, OversizedDocument
from quire.options import require_integer
from quire.plan.lengths import IntArray, as_lengths
from quire.step import StepPlan, pack_step

VERL_COST = (24576.0, 1.0)
"""What verl's `calculate_workload` charges for a token and for a squared length."""


def rearrange_micro_batches(
    batch: Mapping[str, torch.Tensor],
    max_token_len: int,
    dp_group: Any = None,  # noqa: ANN401 - a process group
    num_batches_divided_by: int | None = None,
    same_micro_num_in_dp: bool = True,
    min_num_micro_batch: int | None = None,
    use_dynamic_bsz_balance: bool = True,
    force_group_size: int = 1,
) -> tuple[list[Any], list[list[int]]]:
    """Micro-batches of a rank's batch, and the samples of each, as verl's function returns them.

    Ranks agree on the number of micro-batches with one collective. The lengths are those of
    ``attention_mask``, or of jagged ``input_ids``.
    """
    lengths, groups, longest = _groups_of_samples(_lengths(batch), force_group_size)
    options: dict[str, Any] = {
        "max_length": max_token_len,
        "micro_steps_multiple_of": num_batches_divided_by or 1,
        "groups": groups if force_group_size > 1 else None,
        "cost": VERL_COST,
        "order": "smallest_at_ends" if use_dynamic_bsz_balance else "largest_first",
    }
    number, least = int(groups[-1]) + 1, min_num_micro_batch or 1
    plan = None
    if longest <= max_token_len:
        plan = pack_step(lengths, min_micro_steps=least, **options)
        least = plan.num_micro_steps
    if distributed.is_initialized() and same_micro_num_in_dp and dp_group is not None:
        least, number, longest = _agreed(least, number, longest, dp_group)
    # Every rank raises or none does: otherwise the others would wait for it.
    _require_possible(least, number, longest, max_token_len, force_group_size)
    if plan is None or plan.num_micro_steps < least:
        plan = pack_step(lengths, min_micro_steps=least, **options)
    rows = [plan.row(0, step).tolist() for step in range(plan.num_micro_steps)]
    return [_select(batch, row) for row in rows], rows


def get_seqlen_balanced_partitions(
    seqlen_list: Sequence[int],
    k_partitions: int,
    equal_size: bool,
) -> list[list[int]]:
    """Partitions of about equal sums, each with sorted indices; of equal numbers if asked."""
    number, k_partitions = len(seqlen_list), require_integer("k_partitions", k_partitions, 1)
    if number < k_partitions or (equal_size and number % k_partitions):
        raise InvalidOption(
            f"{number} lengths cannot be divided into {k_partitions} "
            f"{'equal ' if equal_size else ''}partitions"
        )
    lengths = _at_least_one(seqlen_list)
    budgets = {"samples": (np.ones(number, np.int64), number // k_partitions)}
    plan = pack_step(
        lengths,
        max_length=max(1, int(lengths.sum())),
        num_ranks=k_partitions,
        budgets=budgets if equal_size else None,
        cost=(1, 0),
    )
    return [plan.row(rank, 0).tolist() for rank in range(k_partitions)]


def get_packer(
    algorithm: str = "quire",
    bin_capacity: int = 0,
    collect_metrics: bool = False,
    min_bin_count: int | None = None,
    bin_count_multiple: int | None = None,
) -> SequencePacker:
    """A packer with NeMo-RL's interface; ``algorithm`` and ``collect_metrics`` are not used."""
    del algorithm, collect_metrics
    return SequencePacker(bin_capacity, min_bin_count, bin_count_multiple)


class SequencePacker:
    """Bins of sequences as NeMo-RL's packers return them.

    NeMo-RL deals bins round-robin to ranks: bin b is for rank ``b % bin_count_multiple``. Bins that
    follow each other are therefore of equal cost.
    """

    def __init__(
        self, bin_capacity: int, min_bin_count: int | None, bin_count_multiple: int | None
    ) -> None:
        self.bin_capacity = bin_capacity
        self.num_ranks = bin_count_multiple or 1
        self.min_bin_count = min_bin_count or 1

    def pack(self, sequence_lengths: Sequence[int]) -> list[list[int]]:
        """Bins of indices, each of at most the capacity; none is empty."""
        plan = pack_step(
            _at_least_one(sequence_lengths),
            max_length=self.bin_capacity,
            num_ranks=self.num_ranks,
            min_micro_steps=-(-self.min_bin_count // self.num_ranks),
        )
        if len(plan.dummies):
            raise InvalidOption(
                f"{plan.row_lengths.size} bins are needed for {self.num_ranks} ranks but there "
                f"are only {len(sequence_lengths)} sequences"
            )
        return [
            plan.row(rank, step).tolist()
            for step in range(plan.num_micro_steps)
            for rank in range(self.num_ranks)
        ]


def packed_log_probs(
    log_probs: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    logits_to_keep: int,
    *,
    max_length: int,
) -> torch.Tensor:
    """The log-probabilities of a padded batch's last tokens, without computing its padding.

    This is what TRL's GRPOTrainer computes from the same padded ``input_ids``. ``log_probs`` is
    called with the ids and positions of one packed row, and returns a value per token: its
    log-probability given those before it. Padding has 0, as has the first token of a sequence.
    """
    mask = attention_mask.bool()
    require_integer("logits_to_keep", logits_to_keep, 0, mask.shape[1])
    plan: StepPlan = pack_step(mask.sum(dim=1).cpu().numpy(), max_length=max_length)
    rows = [
        log_probs(row, torch.as_tensor(plan.position_ids(0, step), device=row.device))
        for step, row in enumerate(plan.gather(input_ids[mask], rank=0, per="token"))
    ]
    flat = plan.unpack([rows], per="token")
    padded: torch.Tensor = flat.new_zeros(mask.shape).masked_scatter(mask, flat)
    return padded[:, mask.shape[1] - logits_to_keep :]


def _lengths(batch: Mapping[str, torch.Tensor]) -> Any:  # noqa: ANN401 - an array
    ids: Any = batch["input_ids"]
    if ids.is_nested:
        return ids.offsets().diff().cpu().numpy()
    return batch["attention_mask"].sum(dim=1).cpu().numpy()


def _groups_of_samples(samples: Any, size: int) -> tuple[IntArray, IntArray, int]:  # noqa: ANN401
    """The lengths of samples, the group of each, and the tokens of the longest group."""
    size = require_integer("force_group_size", size, 1)
    lengths = _at_least_one(samples)
    if not len(lengths) or len(lengths) % size:
        raise InvalidOption(
            f"the batch has {len(lengths)} samples but must have a multiple of {size} "
            "(force_group_size), at least one"
        )
    return (
        lengths,
        np.arange(len(lengths)) // size,
        int(lengths.reshape(-1, size).sum(axis=1).max()),
    )


def _require_possible(least: int, groups: int, longest: int, limit: int, size: int) -> None:
    """Raise if the largest group, or the number of micro-batches, is too large for some rank."""
    if longest > limit:
        raise OversizedDocument(
            f"a sample or a group of {size} has {longest} tokens on some rank but a "
            f"micro-batch holds {limit}; raise max_token_len"
        )
    if least > groups:
        raise InvalidOption(
            f"{least} micro-batches are needed but a rank has only {groups} samples or groups; "
            "raise max_token_len or lower min_num_micro_batch"
        )


def _at_least_one(lengths: Any) -> IntArray:  # noqa: ANN401
    """The lengths, 1 for those that are 0: the originals return such samples as well."""
    return np.maximum(as_lengths(lengths).astype(np.int64), 1)


def _agreed(
    steps: int,
    groups: int,
    longest: int,
    dp_group: Any,  # noqa: ANN401
) -> tuple[int, int, int]:
    """The most micro-batches of any rank, the fewest groups, and the longest group."""
    counts = torch.tensor([steps, -groups, longest])
    if distributed.get_backend(dp_group) == "nccl":
        counts = counts.cuda()
    distributed.all_reduce(counts, op=distributed.ReduceOp.MAX, group=dp_group)
    most, fewest, largest = counts.tolist()
    return most, -fewest, largest


def _select(batch: Mapping[str, torch.Tensor], rows: list[int]) -> Any:  # noqa: ANN401
    """Some samples of a batch, of the batch's own type."""
    chosen = {name: _samples(values, rows) for name, values in batch.items()}
    if hasattr(batch, "batch_size"):  # a TensorDict
        return type(batch)(chosen, batch_size=[len(rows)])  # type: ignore[call-arg]
    return chosen


def _samples(values: Any, rows: list[int]) -> Any:  # noqa: ANN401
    if getattr(values, "is_nested", False):
        parts = values.unbind()
        ragged = next(d for d, size in enumerate(values.shape) if not isinstance(size, int))
        chosen = [parts[row].transpose(0, ragged - 1) for row in rows]
        return torch.nested.as_nested_tensor(chosen, layout=torch.jagged).transpose(1, ragged)
    if isinstance(values, torch.Tensor):
        return values[torch.tensor(rows, dtype=torch.long, device=values.device)]
    if hasattr(values, "shape"):  # of a TensorDict: a value per sample, or one for the batch
        return values[rows] if values.shape else values
    return [values[row] for row in rows]
