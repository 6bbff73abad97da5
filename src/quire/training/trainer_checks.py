"""What `attach` checks before the first step: ranks, batch sizes, the collator, known traps."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers import Trainer

from quire.errors import InvalidOption, QuireError
from quire.packed.loader import PackedLoader
from quire.stream.torch_adapter import TorchBatches
from quire.training.data import TrainingData
from quire.training.loss import batch_segments
from quire.training.sources import PackedSource

logger = logging.getLogger("quire.training")
NUM_TRIED = 8
"""Rows among which one with several documents is looked for."""
_NUM_DIGESTED = 64
"""Rows of a list by which it is known again."""


def require_shape(trainer: Trainer, source: PackedLoader | TorchBatches) -> None:
    """Raise unless the trainer's ranks and batch sizes are those of the source."""
    args = trainer.args
    if args.n_gpu > 1:
        raise InvalidOption(
            f"{args.n_gpu} devices in one process would divide a packed batch; start one process "
            "per device (torchrun --nproc-per-node)"
        )
    if args.auto_find_batch_size:
        raise InvalidOption(
            "auto_find_batch_size starts over with smaller batches when memory runs out, but the "
            "batches are those of the data; set it to False, and fewer rows per microbatch"
        )
    if isinstance(source, PackedLoader):
        rank, world = source.options.rank, source.options.world_size
        rows, name, accumulation = source.options.global_batch, "global_batch", None
    else:
        rank, world, options = source.rank, source.world_size, source.options
        rows, name = options.batch_size * options.grad_accum, options.name("batch_size")
        accumulation = options.grad_accum
    if (rank, world) != (args.process_index, args.world_size):
        raise InvalidOption(
            f"the data is opened for rank {rank} of {world} but this process is rank "
            f"{args.process_index} of {args.world_size}; open it with rank=args.process_index, "
            "world_size=args.world_size"
        )
    steps = args.gradient_accumulation_steps
    if accumulation not in (None, steps):
        raise InvalidOption(
            f"a batch of the stream has {accumulation} microbatches but gradient_accumulation_steps"
            f" is {steps}; give both the same number"
        )
    given = args.train_batch_size * steps * world
    if given != rows:
        raise InvalidOption(
            f"{name} makes {rows} rows per step, but the trainer's are {given} (per_device_train_"
            f"batch_size {args.train_batch_size} × gradient_accumulation_steps {steps} × {world} "
            "ranks); make them equal"
        )


def warn_of_traps(trainer: Trainer, averaging: str | None) -> None:
    """Log one warning for each argument that makes a resume inexact or a loss unequal."""
    args = trainer.args
    if args.save_only_model:
        logger.warning(
            "save_only_model leaves optimizer and random state out of checkpoints, so a "
            "resumed run differs; set it to False"
        )
    is_own_mean = averaging is None and not trainer.model_accepts_loss_kwargs
    parts = args.gradient_accumulation_steps * args.world_size
    if is_own_mean and parts > 1 and trainer.compute_loss_func is None:
        logger.warning(
            "%s divides the loss of every microbatch by its own targets (transformers issue 37766),"
            " so tokens of microbatches with fewer of them weigh more; pass averaging='token' to "
            "quire.training.attach",
            type(trainer.model).__name__,
        )
    elif averaging is None and args.world_size > 1 and not args.average_tokens_across_devices:
        logger.warning(
            "average_tokens_across_devices is off: every rank divides by its own number of targets,"
            " so the tokens of a rank with fewer of them weigh more; turn it on, or pass "
            "averaging='token' to quire.training.attach"
        )


def require_collator(trainer: Trainer, data: TrainingData | None) -> None:
    """Raise unless the batches of the trainer's collator keep the documents of a row apart."""
    rows = _rows_to_try(trainer, data)
    packed = [row for row in rows if len(row.get("document_starts", ())) > 1][:2]
    if not packed:
        return
    collate = trainer.data_collator
    name = getattr(collate, "__name__", type(collate).__name__)
    removed = _removed_columns(trainer, packed[0]) if data is None else set()
    remedy = "pass data_collator=quire.collate.DataCollatorForCausalLM(tokenizer) to the trainer"
    if "document_starts" in removed:
        remedy = "set remove_unused_columns=False, as the Trainer removes document_starts"
    try:
        batch = collate([{k: v for k, v in row.items() if k not in removed} for row in packed])
    except QuireError:
        raise
    except Exception as error:
        raise InvalidOption(f"{name} cannot collate packed rows ({error}); {remedy}") from error
    num_documents = sum(len(row["document_starts"]) for row in packed)
    if why := _mixes(batch, num_documents):
        raise InvalidOption(f"{name} {why}, so documents would see each other; {remedy}")


def _rows_to_try(trainer: Trainer, data: TrainingData | None) -> list[Mapping[str, Any]]:
    if data is None:
        dataset: Any = trainer.train_dataset
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            return []
        found = [dataset[number] for number in range(min(NUM_TRIED, len(dataset)))]
        return [row for row in found if isinstance(row, Mapping)]
    if isinstance(data.source, PackedSource):
        dataset = data.source.loader.dataset
        return [dataset[number] for number in range(min(NUM_TRIED, len(dataset)))]
    return []


def _removed_columns(trainer: Trainer, row: Mapping[str, Any]) -> set[str]:
    """The columns of its own dataset that the Trainer removes, as ``forward`` does not name them.

    It passes them to its collator only with ``remove_unused_columns=False``.
    """
    if not trainer.args.remove_unused_columns:
        return set()
    trainer._set_signature_columns_if_needed()
    return set(row) - set(trainer._signature_columns or ())


def dataset_identity(rows: Any) -> str | None:  # noqa: ANN401 - any dataset
    """What tells a dataset from others: its fingerprint, or that of some rows of a list."""
    if isinstance(rows, list | tuple):
        every = range(0, len(rows), max(1, len(rows) // _NUM_DIGESTED))
        content = repr([_plain(rows[number]) for number in every])
        return hashlib.sha256(content.encode()).hexdigest()
    return getattr(rows, "fingerprint", None) or getattr(rows, "_fingerprint", None)


def _plain(value: Any) -> Any:  # noqa: ANN401
    """The value without arrays, which ``repr`` would shorten."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in sorted(value.items())}
    return value.tolist() if hasattr(value, "tolist") else value


def _mixes(batch: Any, num_documents: int) -> str | None:  # noqa: ANN401
    """Why documents of the batch are not kept apart; None if they are."""
    if not isinstance(batch, Mapping):
        return f"makes a {type(batch).__name__}, not a dict"
    mask = batch.get("attention_mask")
    if isinstance(mask, torch.Tensor | np.ndarray) and mask.ndim == 2:
        return "adds a 2-D attention_mask, with which transformers ignores document boundaries"
    if mask is not None or batch.get("cu_seq_lens_q") is not None:
        return None  # bounds, or a mask in a form that knows documents
    if any(batch.get(name) is not None for name in ("position_ids", "seq_idx", "segment_ids")):
        segments = batch_segments(batch)
        rows = np.indices(segments.shape)[0]
        found = len(np.unique(np.stack([rows.ravel(), segments.ravel()]), axis=1).T)
        enough = found >= num_documents
        return None if enough else f"marks {found} of {num_documents} documents"
    return "gives no position_ids"
