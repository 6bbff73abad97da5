"""`attach`: packed data, its exact resume and its loss in a transformers or TRL trainer."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from quire.errors import InvalidOption, InvalidState
from quire.packed.loader import PackedLoader
from quire.seals import Seal, require_same
from quire.stream.torch_adapter import TorchBatches
from quire.training.checkpoint import (
    delete_older,
    read_state,
    record_checkpoint,
    resumed_path,
    state_path,
    write_state,
)
from quire.training.data import TrainingData
from quire.training.loss import PackedLoss, summed_over_ranks
from quire.training.metrics import SOURCE_IDS, SourceMetrics
from quire.training.trainer_checks import (
    dataset_identity,
    require_collator,
    require_shape,
    warn_of_traps,
)
from quire.vision.dataset import PackedVLDataset

logger = logging.getLogger("quire.training")
STATE_NAME = "quire_data.json"
"""Written into a checkpoint after the Trainer's own files, so its presence shows it is complete."""
_SEAL = Seal(format="quire.training.checkpoint", owner="a training run on packed data", first=3)


def attach(
    trainer: Trainer,
    source: PackedLoader | TorchBatches | None = None,
    *,
    averaging: str | None = None,
    metrics: SourceMetrics | None = None,
) -> DataCallback:
    """Let a `transformers.Trainer`, or TRL's `SFTTrainer`, train on packed data exactly.

    ``source`` is `PackedDataset.loader(...)` or `quire.stream.TorchBatches(...)` of this process's
    rank; the trainer reads its microbatches instead of ``train_dataset``, collates the rows of a
    loader with its own ``data_collator``, and neither shuffles nor divides them. Without a source
    it trains on the packed rows of its ``train_dataset``. Checkpoints then record the data;
    ``trainer.train(resume_from_checkpoint=True)`` takes the last complete one and continues with
    the very next microbatch, or raises InvalidState if data, plan, tokenizer or batch differ.

    ``averaging`` replaces the loss by `PackedLoss`. ``metrics`` (with `SourceCollator`) logs loss
    and token accuracy per source, over all ranks; it implies ``averaging="token"``.
    """
    if any(isinstance(each, DataCallback) for each in trainer.callback_handler.callbacks):
        raise InvalidOption("the trainer has data attached already; attach only once")
    data = None if source is None else _trainer_data(trainer, source)
    require_collator(trainer, data)
    warn_of_traps(trainer, "token" if metrics is not None else averaging)
    callback = DataCallback(trainer, data)
    trainer.add_callback(callback)
    handled = trainer.callback_handler.callbacks
    handled.insert(0, handled.pop())  # before reporters, which then receive the metrics
    record_checkpoint(trainer, callback)
    if data is not None:
        trainer.get_train_dataloader = callback.loader  # type: ignore[method-assign]
    if averaging is not None or metrics is not None:
        callback.replace_loss(PackedLoss(averaging=averaging or "token"), metrics)
    return callback


def _trainer_data(
    trainer: Trainer, source: PackedLoader | TorchBatches | PackedVLDataset
) -> TrainingData:
    args = trainer.args
    if isinstance(source, PackedVLDataset):
        raise InvalidOption(
            "attach takes no PackedVLDataset; use quire.vision.configure_training(...).make_trainer"
            "(...), or pack the samples with `quire pack` and attach the loader of their rows"
        )
    is_packed = isinstance(source, PackedLoader)
    data = TrainingData(
        source,
        accumulation=args.gradient_accumulation_steps if is_packed else None,
        collate=trainer.data_collator if is_packed else None,
        num_workers=args.dataloader_num_workers,
    )
    require_shape(trainer, source)
    return data


class DataCallback(TrainerCallback):
    """Saves and restores the position in the data with the Trainer's checkpoints."""

    state_name = STATE_NAME

    def __init__(self, trainer: Trainer, data: TrainingData | None) -> None:
        self.data = data
        self.resumed_from: Path | None = None
        """The checkpoint that is resumed, if known; otherwise one in the output folder."""
        self._trainer = trainer
        self._collate = trainer.data_collator
        self._start = None if data is None else data.state_dict()
        self._batches = None if data is None else _TrainerBatches(data)
        self._metrics: SourceMetrics | None = None

    def loader(self) -> DataLoader[Any]:
        """The microbatches as the Trainer reads them; accelerate must not divide them."""
        generator = torch.Generator().manual_seed(0)  # no draw from the global one
        pin = self._trainer.args.dataloader_pin_memory and torch.cuda.is_available()
        return DataLoader(self._batches, batch_size=None, pin_memory=pin, generator=generator)  # type: ignore[arg-type]

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Continue after the microbatches of a checkpoint, if the data is the same."""
        self._require_same_collator()
        if not state.global_step:
            if self.data is not None and self._start is not None:
                self.data.load_state_dict(self._start)
            return
        path = resumed_path(args, state, self)
        if not path.exists():
            raise InvalidState(
                f"{path.parent} has no {self.state_name}: it was saved without quire.training."
                "attach, or is incomplete; resume from another checkpoint, or train from the start"
            )
        saved = read_state(path, _SEAL)
        require_same(saved.get("batch"), self._batch(args), "continue with the same global batch")
        if self.data is None or self._batches is None:
            remedy = "continue with the same dataset and arguments"
            require_same(saved.get("rows"), self._rows(), remedy)
            return
        self.data.load_state_dict(saved["data"])
        self._batches.num_skipped = self._num_skipped(self.data, args, state)

    def _require_same_collator(self) -> None:
        """Raise if the collator was replaced: only the one that was attached has been tried."""
        if self._trainer.data_collator is not self._collate:
            names = [type(one).__name__ for one in (self._collate, self._trainer.data_collator)]
            raise InvalidOption(
                f"the trainer's data_collator was replaced after quire.training.attach ({names[0]} "
                f"by {names[1]}), so it was not checked; set it before attach"
            )

    def _num_skipped(self, data: TrainingData, args: TrainingArguments, state: TrainerState) -> int:
        """The microbatches that the Trainer will discard, computed as it does."""
        steps, per_step = state.global_step, args.gradient_accumulation_steps
        total = data.num_microbatches
        per_epoch = state.max_steps if total is None else total // per_step
        expected = (steps // per_epoch, steps % per_epoch * per_step)
        found = (data.epoch, data.num_done)
        if total is not None and found != expected:
            raise InvalidState(
                f"the data continues at epoch {found[0]}, microbatch {found[1]}, but the Trainer "
                f"at epoch {expected[0]}, microbatch {expected[1]}; resume with the arguments of "
                "the run that saved the checkpoint"
            )
        return 0 if args.ignore_data_skip else expected[1]

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Write the position into the checkpoint, when all ranks have written their files."""
        body: dict[str, Any] = {"global_step": state.global_step, "batch": self._batch(args)}
        if self.data is None:
            body["rows"] = self._rows()
        else:
            body["data"] = _of_all_ranks(self.data)
        if args.world_size > 1:
            dist.barrier()
        if state.is_world_process_zero:
            write_state(state_path(args, state, self.state_name), _SEAL.sealed(body))
            delete_older(args, state)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: object,
    ) -> None:
        """Add the metrics of sources to what reporters receive and to the history."""
        if self._metrics is None or "loss" not in (logs or {}):
            return
        found = self._metrics.take()
        for entry in (logs, state.log_history[-1] if state.log_history else None):
            if entry is not None:
                entry.update(found)

    def replace_loss(self, loss: PackedLoss, metrics: SourceMetrics | None) -> None:
        """Let the trainer compute this loss, with denominators over the step and all ranks."""
        self._metrics = metrics
        steps = _StepLoss(self._trainer, loss, metrics)
        self._trainer.get_batch_samples = steps.get_batch_samples  # type: ignore[method-assign]
        self._trainer.compute_loss_func = steps

    def _batch(self, args: TrainingArguments) -> dict[str, int]:
        """The rows of a step; how they are divided among ranks and microbatches may change."""
        each = args.train_batch_size * args.gradient_accumulation_steps
        return {"rows_per_step": each * args.world_size}

    def _rows(self) -> dict[str, Any]:
        """What determines the order in which a Trainer reads its own dataset."""
        rows: Any = self._trainer.train_dataset
        args = self._trainer.args
        data_seed = args.seed if args.data_seed is None else args.data_seed
        return {
            "dataset": dataset_identity(rows),
            "num_rows": len(rows) if hasattr(rows, "__len__") else None,
            "seed": data_seed,
            "sampling": str(getattr(args, "train_sampling_strategy", None)),
            "dataloader_drop_last": args.dataloader_drop_last,
        }


class _TrainerBatches(IterableDataset[Any]):
    """The data's microbatches, with empty ones in place of those that a resumed Trainer discards.

    Nothing is read for them.
    """

    def __init__(self, data: TrainingData) -> None:
        self._data, self.num_skipped = data, 0

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.num_skipped):
            yield {}
        self.num_skipped = 0
        yield from self._data


def _of_all_ranks(data: TrainingData) -> Any:  # noqa: ANN401
    """The state of the data; of a stream of several parts, those of all ranks."""
    own, world = data.state_dict(), data.source.world_size
    if world == 1 or not isinstance(own, dict) or data.source.kind != "a stream":
        return own
    states: list[Any] = [None] * world
    dist.all_gather_object(states, own)
    return states


class _StepLoss:
    """The loss of each microbatch of a step, for a Trainer's ``compute_loss_func``.

    The Trainer fetches all microbatches of a step first: the weights of each are computed then, and
    used in the same order.
    """

    def __init__(self, trainer: Trainer, loss: PackedLoss, metrics: SourceMetrics | None) -> None:
        self._trainer, self._loss, self._metrics = trainer, loss, metrics
        self._fetch = trainer.get_batch_samples
        self._pending: deque[tuple[dict[str, Any], torch.Tensor]] = deque()
        self._denominator = 1.0

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | int | None]:
        """The microbatches of a step, whose boundaries and sources are kept for the loss."""
        batches, _ = self._fetch(epoch_iterator, num_batches, device)
        self._pending.clear()
        weight = 0.0
        for batch in batches:
            if not batch:  # in place of one that is skipped
                continue
            kept = {name: batch[name] for name in _KEPT if name in batch}
            batch.pop(SOURCE_IDS, None)
            weights, totals = self._loss.weights(kept)
            weight += totals.weight
            self._pending.append((kept, weights))
        self._denominator = summed_over_ranks(weight)
        return batches, torch.tensor(self._denominator, device=device)

    def __call__(
        self,
        outputs: Any,  # noqa: ANN401 - of any model
        labels: torch.Tensor | None,
        num_items_in_batch: object = None,
    ) -> torch.Tensor:
        """The loss of the next microbatch; in evaluation, that of the batch by itself."""
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        if not logits.requires_grad or not self._pending:
            batch = {"labels": labels}
            return self._loss(logits, batch, self._loss.denominator([batch]))
        batch, weights = self._pending.popleft()
        losses, correct, targets = self._loss.of_tokens(logits, batch)
        self._count(losses, correct, targets, batch)
        args = self._trainer.args
        # The Trainer multiplies by the ranks itself if it averages tokens across devices.
        ranks = 1 if args.average_tokens_across_devices else args.world_size
        weighted = (weights.to(losses) * losses).sum()
        return weighted * (ranks / (self._denominator or 1.0))

    def _count(
        self,
        losses: torch.Tensor,
        correct: torch.Tensor,
        targets: torch.Tensor,
        batch: dict[str, Any],
    ) -> None:
        if self._metrics is None:
            return
        if SOURCE_IDS not in batch:
            raise InvalidOption(
                "metrics per source need the source of every token, but batches have no "
                f"{SOURCE_IDS}; wrap the collator in quire.training.SourceCollator"
            )
        sources = batch[SOURCE_IDS].to(losses.device)
        if "shift_labels" not in batch:  # predictions are one position before their targets
            sources = torch.nn.functional.pad(sources, (0, 1), value=-1)[..., 1:]
        flat = sources.flatten()[targets]
        self._metrics.add(losses.detach()[targets], correct[targets], flat)


_KEPT = (
    *("labels", "shift_labels", "segment_ids", "seq_idx", "position_ids", "text_position_ids"),
    SOURCE_IDS,
)
