"""What a transformers Trainer is told of packing: epochs, telemetry, and the state of its data."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from quire.errors import InvalidState
from quire.files import whole_file
from quire.seals import Seal
from quire.vision.resumed_weights import require_weights_of
from quire.vision.state import MIGRATIONS, read_count, require_same_terms
from quire.vision.telemetry import PackingTelemetry, aggregate_metrics
from quire.vision.token_accuracy import TokenAccuracy
from quire.vision.training_packs import TrainingPacks, is_sized

logger = logging.getLogger("quire.vision")
STATE_NAME = "quire_vision.json"
"""Beside the Trainer's own files in a checkpoint."""
_SEAL = Seal(
    format="quire.vision.training",
    owner="training on packs",
    migrations=MIGRATIONS,
    first=3,
)


class PackingCallback(TrainerCallback):
    """Names epochs to the packs, reports on every epoch, and guards what is resumed.

    `history` holds one telemetry for each finished epoch. Metrics of single datasets are taken
    from the Trainer's logs, because a pack mixes them.
    """

    def __init__(self, packs: TrainingPacks) -> None:
        self._packs = packs
        self.history: list[PackingTelemetry] = []
        self.log: Callable[[dict[str, float]], None] | None = None
        """The Trainer's own `log`, where it is known; else telemetry goes to its history alone."""
        self.resumed_from: Path | None = None
        """The checkpoint that is resumed, where that is known; else one of the output folder."""
        self._accuracy = TokenAccuracy()

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the fused datasets."""
        return tuple(getattr(self._packs.packed.dataset, "names", ()))

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: object = None,
        **others: object,
    ) -> None:
        """Go on behind the packs that a checkpoint has had, if data and options are the same."""
        if isinstance(model, torch.nn.Module):
            self._accuracy.watch(model)
        if not state.global_step:
            self._packs.go_on_behind(0, 0)
            return
        if not is_sized(self._packs.packed):
            raise InvalidState(
                f"training goes on at step {state.global_step}, but lengths are not known, so no "
                f"pack can be found again; give {self._packs.packed.lengths_needed}, from the start"
            )
        path = _state_path(args, state)
        if self.resumed_from is not None:
            path = self.resumed_from / STATE_NAME
        if isinstance(model, torch.nn.Module):
            require_weights_of(model, path.parent)
        if path.exists():
            self._require_same_packs(path)
        else:
            logger.warning("no %s: whether data and options are the same is not checked", path)
        self._packs.go_on_behind(*_place(args, state, len(self._packs.packed)))

    def _require_same_packs(self, path: Path) -> None:
        """Raise if the packs of the epoch in which a checkpoint was written would be others now."""
        plain = _read_checkpoint(path)
        epoch = read_count("epoch", plain.get("epoch"))
        self._packs.packed.set_epoch(epoch)
        require_same_terms(plain.get("terms"), self._terms())

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: object,
    ) -> None:
        """Rebuild the schedule for the epoch: fused datasets first, then packs."""
        self._packs.set_epoch(int(state.epoch or 0))

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: object,
    ) -> None:
        """Report on the epoch: a line in the log, a record here, numbers for the Trainer.

        Of known lengths it is the epoch as planned, also where a run ends within it.
        """
        packed = self._packs.packed
        telemetry = packed.planned_telemetry() or packed.telemetry()
        if not telemetry.num_packs and args.dataloader_num_workers:
            logger.warning(
                "workers have made the packs of epoch %d from unknown lengths: each has logged its "
                "own part, and the whole is not known; give lengths",
                *(telemetry.epoch,),
            )
            return
        self.history.append(telemetry)
        if args.dataloader_num_workers:  # else the dataset has logged it in this process
            logger.info(telemetry.line())
        metrics = telemetry.metrics()
        if self.log is not None:
            self.log(metrics)
        else:
            place = {"epoch": state.epoch, "step": state.global_step}
            state.log_history.append({**metrics, **place})

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **others: object,
    ) -> None:
        """Keep aggregate metrics alone, in what reporters get and in the history."""
        entries = (logs or {}, state.log_history[-1] if state.log_history else {})
        accuracy = self._accuracy.take() if "loss" in entries[0] else None
        for entry in entries:
            if accuracy is not None:
                entry["token_acc"] = accuracy
            for name in set(entry) - set(aggregate_metrics(entry, self.sources)):
                if not name.startswith("eval_"):  # of samples that were not mixed into packs
                    del entry[name]

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: object,
    ) -> None:
        """Leave the model as it was."""
        self._accuracy.release()

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **others: object,
    ) -> None:
        """Write under which terms the packs of this checkpoint were made, beside the weights."""
        if not state.is_world_process_zero:
            return
        plain = _SEAL.sealed(
            {
                "epoch": self._packs.packed.epoch,
                "global_step": state.global_step,
                "terms": self._terms(),
            }
        )
        with whole_file(_state_path(args, state)) as path:
            path.write_text(json.dumps(plain, indent=1), encoding="utf-8")

    def _terms(self) -> dict[str, Any]:
        """What decides the packs of every epoch; the order of one epoch is not among it."""
        terms: dict[str, Any] = self._packs.packed.state_dict()["terms"]
        return {name: value for name, value in terms.items() if name != "lengths"}


def _place(args: TrainingArguments, state: TrainerState, num_packs: int) -> tuple[int, int]:
    """The epoch, and how many of its packs were had: the sum that the Trainer itself does."""
    per_step = args.gradient_accumulation_steps
    epoch, steps = divmod(state.global_step, max(1, -(-num_packs // per_step)))
    return epoch, 0 if args.ignore_data_skip else steps * per_step


def _state_path(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / STATE_NAME


def _read_checkpoint(path: Path) -> dict[str, Any]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidState(f"{path} is damaged: {error}; go on from an earlier one") from error
    try:
        return _SEAL.opened(plain)
    except InvalidState as error:
        raise InvalidState(f"{path}: {error}") from None
