"""`configure_training`: arguments, datasets, collator and callback for a transformers Trainer."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from transformers import Trainer, TrainingArguments

from quire.collate import (
    MropeOptions,
    VisionCollator,
    VisionPaddedCollator,
    VisionPaddingFreeCollator,
)
from quire.collate.special_tokens import SpecialTokens
from quire.collate.vision import VisionModel, resolve_mrope
from quire.errors import InvalidOption
from quire.training.checkpoint import record_checkpoint
from quire.vision.adapters import TrainingPacks
from quire.vision.callback import PackingCallback
from quire.vision.dataset import PackedVLDataset
from quire.vision.lengths import KnownLengths
from quire.vision.options import VisionPackingOptions, evaluation_template

logger = logging.getLogger("quire.vision")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VisionTraining:
    """The parts of a Trainer; ``args`` is a copy of the arguments given."""

    args: TrainingArguments
    train_dataset: Any
    """`TrainingPacks`, or without packing the dataset as given."""
    eval_dataset: Any
    data_collator: VisionCollator
    callbacks: list[PackingCallback]
    eval_template: Any = None
    """A copy of the template with packing and padding-free batches turned off."""

    def trainer_arguments(self) -> dict[str, Any]:
        """Keywords of `Trainer`; add the model and others."""
        names = ("args", "train_dataset", "eval_dataset", "data_collator", "callbacks")
        return {name: getattr(self, name) for name in names}

    def make_trainer(self, kind: type[Trainer] = Trainer, **others: Any) -> Trainer:  # noqa: ANN401
        """A Trainer whose packing callback runs first, so that reporters receive what it logs."""
        own = [*self.callbacks, *others.pop("callbacks", [])]
        trainer = kind(**(self.trainer_arguments() | {"callbacks": own} | others))
        for callback in self.callbacks:
            callbacks = trainer.callback_handler.callbacks
            callbacks.insert(0, callbacks.pop(callbacks.index(callback)))
            callback.log = trainer.log
            record_checkpoint(trainer, callback)
        return trainer


def configure_training(
    args: TrainingArguments,
    options: VisionPackingOptions,
    *,
    train_dataset: Any = None,  # noqa: ANN401 - anything with samples
    eval_dataset: Any = None,  # noqa: ANN401
    model: VisionModel | None = None,
    mrope: MropeOptions | None = None,
    tokenizer: SpecialTokens | None = None,
    template: Any = None,  # noqa: ANN401 - ms-swift's, or another object with these names
    lengths: KnownLengths | None = None,
    attention: str = "transformers",
) -> VisionTraining:
    """Everything for a Trainer that packs training samples and pads evaluation samples.

    Datasets yield encoded samples; `FusionDataset` mixes several. With ``options.packing`` the
    batch size becomes 1 and gradient accumulation is multiplied by the old one; both start from
    the options if they set them, else from ``args``. With ``eval_packing`` evaluation is packed
    too. Positions follow ``mrope``, else the config of ``model``.
    """
    known = resolve_mrope(mrope, model)
    collator = VisionCollator(
        VisionPaddingFreeCollator(known, attention=attention),
        VisionPaddedCollator(tokenizer, known),
    )
    callbacks = []
    args = _copied(args, options)
    if options.packing and train_dataset is not None:
        packed = _pack(train_dataset, options, args, known, template=template, lengths=lengths)
        train_dataset = TrainingPacks(packed, args.world_size)
        callbacks = [PackingCallback(train_dataset)]
    if options.packing:
        _set_batch_size(args)
        _equalize_epochs(train_dataset, args)
    if options.eval_packing and eval_dataset is not None:
        resolved = replace(options, packing_length=options.pack_length(template))
        eval_dataset = _packed_evaluation(eval_dataset, resolved, args, known)
    unpacked = None if template is None else evaluation_template(template)
    return VisionTraining(
        args=args,
        train_dataset=train_dataset,
        eval_dataset=eval_dataset,
        data_collator=collator,
        callbacks=callbacks,
        eval_template=template if options.eval_packing else unpacked,
    )


def _copied(args: TrainingArguments, options: VisionPackingOptions) -> TrainingArguments:
    """A copy of the arguments with the options' batch size, which keeps all columns."""
    args = copy.copy(args)
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
        if (wanted := getattr(options, name)) is not None:
            _require_settable(args, name, wanted)
            setattr(args, name, wanted)
    args.accelerator_config = copy.copy(args.accelerator_config)
    args.remove_unused_columns = False  # images are in columns that no signature names
    return args


def _require_settable(args: TrainingArguments, name: str, wanted: int) -> None:
    """Raise if the arguments were given another value than the options."""
    unset = next(part.default for part in fields(args) if part.name == name)
    given = getattr(args, name)
    if given not in (unset, wanted) or (args.deepspeed and given != wanted):
        raise InvalidOption(
            f"{name} is {given} in TrainingArguments and {wanted} in the options; set it in "
            "TrainingArguments and leave it out of the options"
        )


def _pack(
    dataset: Any,  # noqa: ANN401
    options: VisionPackingOptions,
    args: TrainingArguments,
    mrope: MropeOptions,
    **others: Any,  # noqa: ANN401
) -> PackedVLDataset:
    if isinstance(dataset, PackedVLDataset):
        if dataset.rank != (args.process_index, args.world_size):
            raise InvalidOption(
                f"the packed dataset is of rank {dataset.rank[0]} of {dataset.rank[1]} but this "
                f"process is rank {args.process_index} of {args.world_size}; pass the samples, or "
                "the packs of that rank"
            )
        return dataset
    return PackedVLDataset.from_options(
        dataset,
        options,
        rank=args.process_index,
        world_size=args.world_size,
        image_token_id=mrope.image_token_id,
        video_token_id=mrope.video_token_id,
        **others,
    )


def _packed_evaluation(
    dataset: Any,  # noqa: ANN401
    options: VisionPackingOptions,
    args: TrainingArguments,
    mrope: MropeOptions,
) -> TrainingPacks | dict[str, TrainingPacks]:
    """All evaluation samples in packs; several datasets are packed separately."""
    if isinstance(dataset, Mapping):
        each = dataset.items()
        return {name: _packed_evaluation(one, options, args, mrope) for name, one in each}  # type: ignore[misc]
    args.per_device_eval_batch_size = 1
    _read_own_packs(args)
    whole = replace(options, packing_drop_last=False)
    return TrainingPacks(_pack(dataset, whole, args, mrope), args.world_size)


def _set_batch_size(args: TrainingArguments) -> None:
    """One pack per forward pass, and as many per step as there were samples."""
    given = args.per_device_train_batch_size
    if given > 1:
        if args.deepspeed:
            raise InvalidOption(
                f"per_device_train_batch_size is {given} and DeepSpeed has already read it; set it "
                f"to 1 and multiply gradient_accumulation_steps by {given}"
            )
        args.per_device_train_batch_size = 1
        args.gradient_accumulation_steps *= given
        logger.warning(
            "packing needs per_device_train_batch_size 1, but it was %d: it is now 1, and "
            "gradient_accumulation_steps is %d, so the effective batch size is the same",
            *(given, args.gradient_accumulation_steps),
        )
    if args.train_batch_size != 1:
        raise InvalidOption(
            f"{args.n_gpu} devices in one process would share a pack; start one process per device "
            "(torchrun --nproc-per-node)"
        )
    if args.dataloader_persistent_workers:
        args.dataloader_persistent_workers = False
        logger.warning(
            "turned off persistent workers: they would skip the packs of a resumed epoch again"
        )
    _read_own_packs(args)


def _read_own_packs(args: TrainingArguments) -> None:
    """Keep accelerate from sending one rank's packs to all ranks."""
    accelerator: Any = args.accelerator_config
    accelerator.dispatch_batches = False
    accelerator.split_batches = False


def _equalize_epochs(packs: TrainingPacks | None, args: TrainingArguments) -> None:
    """Give all epochs the same number of packs, if it is known; else require ``max_steps``."""
    if packs is None:
        return
    if packs.is_sized:
        packs.equalize_epochs(_num_epochs(packs, args))
        _require_packs(packs.packed)
    elif args.max_steps <= 0:
        raise InvalidOption(
            f"max_steps is {args.max_steps} and the number of packs is not known, so a Trainer "
            f"cannot know when to stop; set max_steps, or give {packs.packed.lengths_needed}"
        )


def _require_packs(packed: PackedVLDataset) -> None:
    planned = packed.planned_telemetry()
    if planned is not None and not planned.num_packs:
        raise InvalidOption(
            f"no pack can be made from {planned.ledger.documents.input} samples (dropped: "
            f"{dict(planned.ledger.documents.dropped)}), so there is nothing to train on; set "
            "packing_drop_last to false, lower packing_length, or give more samples"
        )


def _num_epochs(packs: TrainingPacks, args: TrainingArguments) -> int:
    if args.max_steps <= 0:
        return math.ceil(args.num_train_epochs)
    steps = math.ceil(len(packs.packed) / args.gradient_accumulation_steps)
    # Possibly fewer, once all epochs are as long as the longest one.
    return math.ceil(args.max_steps / max(1, steps))
