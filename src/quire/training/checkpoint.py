"""What a transformers checkpoint holds about the data, and which checkpoint is complete."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Protocol

from transformers import Trainer, TrainerState, TrainingArguments, trainer_utils
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from quire.errors import InvalidState
from quire.files import whole_file
from quire.seals import Seal

_CAN_WAIT = hasattr(trainer_utils, "rotate_checkpoints")
"""transformers 5.0 deletes older checkpoints in a method of its Trainer."""


class Resumable(Protocol):
    """A callback that learns which checkpoint is resumed; a Trainer passes it only the step."""

    state_name: str
    resumed_from: Path | None


def state_path(args: TrainingArguments, state: TrainerState, name: str) -> Path:
    """The file of this name in the checkpoint of the current step."""
    return Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}" / name


def resumed_path(args: TrainingArguments, state: TrainerState, callback: Resumable) -> Path:
    """The file in the checkpoint that is resumed."""
    if callback.resumed_from is not None:
        return callback.resumed_from / callback.state_name
    return state_path(args, state, callback.state_name)


def write_state(path: Path, plain: dict[str, Any]) -> None:
    """Write the file, which appears whole; it is the last file of its checkpoint."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(plain, indent=1), encoding="utf-8")


def delete_older(args: TrainingArguments, state: TrainerState) -> None:
    """Keep ``save_total_limit`` checkpoints, now that the newest one is complete."""
    if not _CAN_WAIT:
        return
    trainer_utils.rotate_checkpoints(
        output_dir=str(args.output_dir),
        save_total_limit=args.save_total_limit,
        best_model_checkpoint=state.best_model_checkpoint,
        use_mtime=True,
    )


def read_state(path: Path, seal: Seal) -> dict[str, Any]:
    """The content of the file, if it is undamaged."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidState(
            f"{path} is damaged: {error}; resume from an earlier checkpoint"
        ) from error
    try:
        return seal.opened(plain)
    except InvalidState as error:
        raise InvalidState(f"{path}: {error}") from None


def last_checkpoint(folder: Path, name: str) -> Path | None:
    """The newest complete checkpoint of a folder: the one that has this file, written last.

    transformers takes the newest one, also if the run was killed while it was written.
    """
    found = {}
    for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*/{name}"):
        step = path.parent.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        if step.isdigit():
            found[int(step)] = path.parent
    return found[max(found)] if found else None


def keep_until_complete(trainer: Trainer) -> None:
    """Leave older checkpoints to `delete_older`.

    The Trainer deletes them before callbacks write their files, so a run that is killed between the
    two would be left with an incomplete checkpoint and nothing else.
    """
    if not _CAN_WAIT:
        return
    save, args = trainer._save_checkpoint, trainer.args

    @functools.wraps(save)
    def saving(*given: Any, **named: Any) -> None:  # noqa: ANN401
        limit, args.save_total_limit = args.save_total_limit, None
        try:
            save(*given, **named)
        finally:
            args.save_total_limit = limit

    trainer._save_checkpoint = saving  # type: ignore[method-assign]


def record_checkpoint(trainer: Trainer, callback: Resumable) -> None:
    """Tell the callback which checkpoint is resumed; ``True`` means the last complete one."""
    keep_until_complete(trainer)
    train = trainer.train

    @functools.wraps(train)
    def recording(
        resume_from_checkpoint: str | bool | None = None,
        *others: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> object:
        given: str | bool | None = resume_from_checkpoint
        if given is True:
            folder = Path(str(trainer.args.output_dir))
            given = str(last_checkpoint(folder, callback.state_name) or "") or True
        callback.resumed_from = None if isinstance(given, bool | None) else Path(given)
        return train(given, *others, **named)

    trainer.train = recording  # type: ignore[method-assign, assignment]
