"""`PackingCallback`: what a transformers Trainer needs for packing: epochs, telemetry, resuming."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import safe_open
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from quire.errors import InvalidState
from quire.printable import counted
from quire.seals import Seal
from quire.training.checkpoint import (
    delete_older,
    read_state,
    resumed_path,
    state_path,
    write_state,
)
from quire.vision.adapters import TrainingPacks
from quire.vision.state import MIGRATIONS, read_count, require_same_terms
from quire.vision.telemetry import PackingTelemetry, aggregate_metrics

logger = logging.getLogger("quire.vision")
STATE_NAME = "quire_vision.json"
"""Written next to the Trainer's own files in a checkpoint."""
_SEAL = Seal(
    format="quire.vision.training", owner="training on packs", migrations=MIGRATIONS, first=3
)
_WEIGHTS_NAME = "model.safetensors"
_SAMPLED_VALUES = 4096


class PackingCallback(TrainerCallback):
    """Sets epochs on the packs, reports every epoch, and checks what is resumed.

    `history` holds one telemetry per finished epoch. Metrics of single datasets are removed from
    the Trainer's logs, because a pack mixes datasets.
    """

    state_name = STATE_NAME

    def __init__(self, packs: TrainingPacks) -> None:
        self._packs = packs
        self.history: list[PackingTelemetry] = []
        self.log: Callable[[dict[str, float]], None] | None = None
        """The Trainer's `log`, if known; otherwise telemetry goes only to the Trainer's history."""
        self.resumed_from: Path | None = None
        """The checkpoint that is resumed, if known; otherwise one in the output folder."""
        self._accuracy = _TokenAccuracy()

    def __repr__(self) -> str:
        return (
            f"PackingCallback({self._packs.packed!r}, {counted(len(self.history), 'epoch')} done)"
        )

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
        **_: object,
    ) -> None:
        """Continue after the packs of a checkpoint, if data and options are the same."""
        if isinstance(model, torch.nn.Module):
            self._accuracy.watch(model)
        if not state.global_step:
            self._packs.resume(epoch=0, num_packs=0)
            return
        if not self._packs.is_sized:
            raise InvalidState(
                f"training resumes at step {state.global_step}, but lengths are not known, so the "
                f"packs cannot be found again; give {self._packs.packed.lengths_needed}, and train "
                "from the start"
            )
        path = resumed_path(args, state, self)
        if isinstance(model, torch.nn.Module):
            _require_weights(model, path.parent)
        if path.exists():
            self._require_same_packs(path)
        else:
            logger.warning("no %s: not checking that data and options are the same", path)
        epoch, num_packs = _resume_point(args, state, len(self._packs.packed))
        self._packs.resume(epoch, num_packs)

    def _require_same_packs(self, path: Path) -> None:
        """Raise if the packs of the checkpoint's epoch would be different now."""
        plain = read_state(path, _SEAL)
        self._packs.packed.set_epoch(read_count("epoch", plain.get("epoch")))
        require_same_terms(plain.get("terms"), self._terms())

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Rebuild the epoch: fused datasets first, then packs."""
        self._packs.set_epoch(int(state.epoch or 0))

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Report the epoch: a log line, an entry in `history`, metrics for the Trainer.

        With known lengths it is the epoch as planned, even if the run ends within it.
        """
        packed = self._packs.packed
        telemetry = packed.planned_telemetry() or packed.telemetry()
        if not telemetry.num_packs and args.dataloader_num_workers:
            logger.warning(
                "workers packed epoch %d from unknown lengths: each has logged its own part, and "
                "there is no total; give lengths to get one",
                telemetry.epoch,
            )
            return
        self.history.append(telemetry)
        if args.dataloader_num_workers:  # otherwise the dataset has logged it in this process
            logger.info(telemetry.line())
        metrics = telemetry.metrics()
        if self.log is not None:
            self.log(metrics)
        else:
            step = {"epoch": state.epoch, "step": state.global_step}
            state.log_history.append({**metrics, **step})

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: object,
    ) -> None:
        """Keep only aggregate metrics, in what reporters receive and in the history."""
        entries = (logs or {}, state.log_history[-1] if state.log_history else {})
        accuracy = self._accuracy.take() if "loss" in entries[0] else None
        for entry in entries:
            if accuracy is not None:
                entry["token_acc"] = accuracy
            for name in set(entry) - set(aggregate_metrics(entry, self.sources)):
                if not name.startswith("eval_"):  # evaluation does not mix datasets in packs
                    del entry[name]

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Remove the hook from the model."""
        self._accuracy.release()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Record next to the weights the terms under which this checkpoint's packs were made."""
        if not state.is_world_process_zero:
            return
        epoch, step = self._packs.packed.epoch, state.global_step
        plain = _SEAL.sealed({"epoch": epoch, "global_step": step, "terms": self._terms()})
        write_state(state_path(args, state, STATE_NAME), plain)
        delete_older(args, state)

    def _terms(self) -> dict[str, Any]:
        """What determines the packs of every epoch, without the order of a single epoch."""
        terms: dict[str, Any] = self._packs.packed.state_dict()["terms"]
        return {name: value for name, value in terms.items() if name != "lengths"}


def _resume_point(args: TrainingArguments, state: TrainerState, num_packs: int) -> tuple[int, int]:
    """The epoch, and how many of its packs are done, computed as the Trainer does."""
    per_step = args.gradient_accumulation_steps
    epoch, steps = divmod(state.global_step, max(1, -(-num_packs // per_step)))
    return epoch, 0 if args.ignore_data_skip else steps * per_step


class _TokenAccuracy:
    """Counts targets and correct predictions in every forward pass with labels.

    Counts stay on the model's device until they are taken.
    """

    def __init__(self) -> None:
        self._counts: torch.Tensor | None = None
        self._handle: Any = None

    def watch(self, model: torch.nn.Module) -> None:
        """Count the predictions of this model from now on, while it trains."""
        self.release()
        self._handle = model.register_forward_hook(self._count, with_kwargs=True)

    def release(self) -> None:
        """Stop counting."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = self._counts = None

    def take(self) -> float | None:
        """The accuracy since it was last taken; None if there were no targets."""
        counts, self._counts = self._counts, None
        if counts is None:
            return None
        correct, targets = counts.tolist()
        return correct / targets if targets else None

    def _count(
        self, model: torch.nn.Module, args: object, kwargs: Mapping[str, Any], output: object
    ) -> None:
        labels, logits = kwargs.get("labels"), getattr(output, "logits", None)
        if not model.training or labels is None or logits is None or logits.ndim != 3:
            return
        if logits.shape[1] != labels.shape[1]:
            return  # a loss that keeps only some of the logits
        with torch.no_grad():
            wanted = labels[:, 1:]
            is_target = wanted != -100
            correct = (logits[:, :-1].argmax(dim=-1) == wanted) & is_target
            counts = torch.stack([correct.sum(), is_target.sum()])
        self._counts = counts if self._counts is None else self._counts + counts


def _require_weights(model: torch.nn.Module, folder: Path) -> None:
    """Raise unless the model has every weight of the checkpoint, under its name or another.

    transformers 5.22 saves Qwen2-VL and Qwen2.5-VL under older names than it loads when a Trainer
    resumes: it warns, and continues with whatever weights the model had. Weights in several files,
    or of adapters, are not checked.
    """
    path = folder / _WEIGHTS_NAME
    if not path.exists():
        return
    own = model.state_dict()
    with safe_open(path, framework="pt") as file:
        renamed = [name for name in file.keys() if name not in own]  # noqa: SIM118 - not a mapping
        if not renamed:
            return
        digests = {_digest(weight) for weight in own.values()}
        missing = [name for name in renamed if _digest(file.get_tensor(name)) not in digests]
    if missing:
        raise InvalidState(
            f"{len(missing)} weights of {path}, such as {missing[0]!r}, are not in the model: the "
            "Trainer loads weights by name, and the model uses other names; create the model with "
            f"from_pretrained({str(folder)!r}) before resuming"
        )


_Digest: TypeAlias = tuple[tuple[int, ...], str]


def _digest(weight: torch.Tensor) -> _Digest:
    """The shape of a weight, and a hash of values from all over it."""
    flat = weight.detach().reshape(-1)
    values = flat[:: max(1, len(flat) // _SAMPLED_VALUES)].to("cpu", torch.float32).contiguous()
    return tuple(weight.shape), hashlib.sha256(values.numpy().tobytes()).hexdigest()
