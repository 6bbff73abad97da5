"""One rank of a tiny training run that may be killed and resumed, in each framework.

`python -m tests.training.run JOB.json` runs the job of the process's rank. Every rank appends a
digest of each batch it trains on to ``batches-RANK.txt`` and writes one of the final weights.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import quire
from quire.collate import (
    DataCollatorForCausalLM,
    PackedVisionCollator,
    VisionPaddingFreeCollator,
)
from quire.collate.vision import resolve_mrope
from quire.stream import TorchBatches
from quire.training import PackedLoss, TrainingData, attach
from quire.training import trainer as attached
from quire.vision import PackedVLDataset, VisionPackingOptions, configure_training

STEPS, SAVE_EVERY, ACCUMULATION, ROWS = 10, 2, 2, 4
PER_EPOCH = 5
VISION = ("packs", "packed vision")
"""Packs of samples that are made while training, and rows that `quire pack` wrote."""


@dataclass(frozen=True, kw_only=True)
class Job:
    framework: str
    data: str
    folder: str
    corpus: str
    rank: int = 0
    world: int = 1
    resume: bool = False
    kill: str | None = None
    """``step N``: before the update of step N, counted from 0. ``save N``: while it is saved."""
    dropout: float = 0.1
    forget: bool = False
    """A control: the state of the data is not restored."""


def main() -> None:
    job = Job(**json.loads(Path(sys.argv[1]).read_text()))
    place = {"rank": os.environ.get("RANK", "0"), "world": os.environ.get("WORLD_SIZE", "1")}
    run(replace(job, **{name: int(value) for name, value in place.items()}))


def run(job: Job) -> None:
    """Train, and leave at once: threads of gloo can abort a process that is shutting down."""
    warnings.simplefilter("ignore")
    torch.manual_seed(job.rank)
    torch.use_deterministic_algorithms(True)
    owner = FRAMEWORKS[job.framework](job, Recorder(job))
    digest = hashlib.sha256()
    for weight in owner.state_dict().values():
        digest.update(weight.detach().contiguous().numpy().tobytes())
    flat = torch.cat([weight.detach().flatten() for weight in owner.state_dict().values()])
    torch.save(flat, f"{job.folder}/weights-{job.rank}.pt")
    Path(job.folder, f"weights-{job.rank}.txt").write_text(digest.hexdigest())
    if dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)


class Recorder:
    """Writes down what is trained on, and kills the process where the job says."""

    def __init__(self, job: Job) -> None:
        self._path = Path(job.folder, f"batches-{job.rank}.txt")
        where, _, step = (job.kill or "never 0").partition(" ")
        self._where, self._step, self._job = where, int(step), job
        self._count = 0

    def begin(self, step: int) -> None:
        """The next batch is the first one of this step."""
        self._count = step * ACCUMULATION
        with self._path.open("a") as file:
            file.write(f"begin {self._count}\n")

    def batch(self, batch: dict) -> None:
        content = b"".join(np.asarray(batch[name]).tobytes() for name in ("input_ids", "labels"))
        digest = hashlib.sha256(content).hexdigest()[:16]
        with self._path.open("a") as file:
            file.write(f"{digest}\n")
        self._count += 1
        if self._where == "step" and self._count == self._step * ACCUMULATION + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def saving(self, step: int) -> None:
        """Called when everything but the last part of a checkpoint is written."""
        if self._where == "save" and step == self._step and self._job.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def model(job: Job) -> torch.nn.Module:
    if job.data in VISION:
        from tests.vision import language_models

        return language_models.model("qwen3_vl").train()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=384, **sizes, **heads, attention_dropout=job.dropout)
    return LlamaForCausalLM(config)


def vision_samples() -> list[dict]:
    """Real pictures and texts, encoded."""
    from tests.vision import language_models

    made = []
    for index in range(40):
        pictures = [language_models.PICTURES[index % 6]] if index % 3 else []
        sample = language_models.encode("qwen3_vl", "word " * (1 + index % 5), *pictures)
        made.append({**sample, "length": len(sample["input_ids"])})
    return made


def collator(job: Job, tensors: str = "pt"):
    if job.data in VISION:
        plain = VisionPaddingFreeCollator(resolve_mrope(None, model(job)), return_tensors=tensors)
        return plain if job.data == "packs" else of_rows(job, plain)
    options = {"padding": "max_length", "max_length": 64, "return_tensors": tensors}
    return DataCollatorForCausalLM(quire.ByteTokenizer(), **options)


def of_rows(job: Job, plain: VisionPaddingFreeCollator) -> PackedVisionCollator:
    from tests.vision import language_models

    processor = language_models.processor("qwen3_vl").image_processor
    return PackedVisionCollator(processor, plain, image_root=Path(job.corpus))


def source(job: Job):
    """The data of this rank."""
    place = {"rank": job.rank, "world_size": job.world}
    if job.data.startswith("packed"):
        rows = quire.PackedDataset(Path(job.corpus) / job.data)
        return rows.loader(ROWS, seed=3, balance=True, **place)
    if job.data == "stream":
        return TorchBatches(**vars_of_stream(job), **place)
    return PackedVLDataset(vision_samples(), packing_length=160, packing_drop_last=False, **place)


def training_data(job: Job, **options) -> TrainingData:
    given = source(job)
    if job.data == "stream":
        return TrainingData(given, **options)
    return TrainingData(given, accumulation=ACCUMULATION, collate=collator(job), **options)


def clean(batch: dict) -> dict:
    return {name: value for name, value in batch.items() if name not in ("length", "id")}


def plain_torch(job: Job, recorder: Recorder) -> torch.nn.Module:
    """A loop of one's own; with several ranks, DistributedDataParallel."""
    if job.world > 1:
        dist.init_process_group("gloo")
    owner, data, loss = model(job), training_data(job), PackedLoss()
    wrapped = owner if job.world == 1 else distributed(owner)
    optimizer = torch.optim.AdamW(owner.parameters(), lr=1e-2)
    checkpoint, step = Path(job.folder, "checkpoint.pt"), 0
    torch.manual_seed(job.rank)
    if job.resume and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=False)
        owner.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        if not job.forget:
            data.load_state_dict(saved["data"])
        torch.set_rng_state(saved["random"][min(job.rank, len(saved["random"]) - 1)])
        step = saved["step"]
    recorder.begin(step)
    microbatches = forever(data)
    while step < STEPS:
        batches = [next(microbatches) for _ in range(ACCUMULATION)]
        total = loss.denominator(batches)
        for batch in batches:
            recorder.batch(batch)
            inputs = {k: v for k, v in clean(batch).items() if k not in ("labels", "shift_labels")}
            loss(wrapped(**inputs).logits, batch, total).backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % SAVE_EVERY == 0:
            save(job, recorder, step, owner, optimizer, data)
    return owner


def distributed(owner: torch.nn.Module) -> DistributedDataParallel:
    """Packs without pictures leave weights without gradients."""
    return DistributedDataParallel(owner, find_unused_parameters=True)


def save(job: Job, recorder: Recorder, step: int, owner, optimizer, data: TrainingData) -> None:
    """One file, which appears whole or not at all."""
    random = of_all_ranks(job, torch.get_rng_state())
    if job.rank == 0:
        states = {"model": owner.state_dict(), "optimizer": optimizer.state_dict()}
        temporary = Path(job.folder, "checkpoint.unfinished")
        states["data"] = json.loads(json.dumps(data.state_dict()))
        torch.save({"step": step, "random": random, **states}, temporary)
        recorder.saving(step)
        temporary.rename(Path(job.folder, "checkpoint.pt"))


def of_all_ranks(job: Job, value: object) -> list:
    values: list = [value] * job.world
    if job.world > 1:
        dist.all_gather_object(values, value)
    return values


def forever(data: TrainingData):
    while True:
        yield from data


def with_accelerate(job: Job, recorder: Recorder) -> torch.nn.Module:
    from accelerate import Accelerator, DistributedDataParallelKwargs

    # As in `distributed`; accelerate's default waits for gradients that one of the ranks lacks.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=ACCUMULATION, kwargs_handlers=[unused]
    )
    data, loss = training_data(job, device=accelerator.device), PackedLoss()
    owner = model(job)
    wrapped, optimizer = accelerator.prepare(owner, torch.optim.AdamW(owner.parameters(), lr=1e-2))
    accelerator.register_for_checkpointing(data)
    step = 0
    torch.manual_seed(job.rank)
    done = sorted(Path(job.folder).glob("step-*"))
    if job.resume and done:
        accelerator.load_state(str(done[-1]))
        step = int(done[-1].name[5:])
    recorder.begin(step)
    microbatches = forever(data)
    while step < STEPS:
        batches = [next(microbatches) for _ in range(ACCUMULATION)]
        total = loss.denominator(batches)
        for batch in batches:
            recorder.batch(batch)
            with accelerator.accumulate(wrapped):
                inputs = {k: v for k, v in clean(batch).items() if not k.endswith("labels")}
                part = loss(wrapped(**inputs).logits, batch, total)
                # accelerate divides by the microbatches; the denominator has done that already
                accelerator.backward(part * ACCUMULATION)
                optimizer.step()
                optimizer.zero_grad()
        step += 1
        if step % SAVE_EVERY == 0:
            accelerator.save_state(f"{job.folder}/unfinished-{step:03d}")
            accelerator.wait_for_everyone()
            recorder.saving(step)
            if accelerator.is_main_process:
                Path(job.folder, f"unfinished-{step:03d}").rename(f"{job.folder}/step-{step:03d}")
            accelerator.wait_for_everyone()
    return owner


def arguments(job: Job, kind=TrainingArguments, **others):
    rows = 1 if job.data == "packs" else ROWS // ACCUMULATION // job.world
    return kind(
        job.folder,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=ACCUMULATION,
        max_steps=STEPS,
        learning_rate=1e-2,
        save_steps=SAVE_EVERY,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        bf16=False,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        **others,
    )


def averaging(job: Job) -> str | None:
    """Models of Qwen-VL divide by the targets of a microbatch, which depend on the ranks."""
    return "token" if job.data == "packed vision" else None


def resumed(job: Job) -> bool:
    return job.resume and any(Path(job.folder).glob("checkpoint-*"))


def train(job: Job, trainer, recorder: Recorder, module) -> torch.nn.Module:
    owner, write = trainer.model, module.write_state
    started: list[bool] = []

    def note(_, __, keywords: dict) -> None:
        if not owner.training or not keywords.get("input_ids").shape[-1]:
            return
        if not started:
            started.append(True)
            recorder.begin(trainer.state.global_step)
        # A loss of quire's takes the labels out before the model is called.
        labels = keywords.get("labels", keywords.get("shift_labels", keywords["input_ids"]))
        if torch.is_grad_enabled():
            recorder.batch({"input_ids": keywords["input_ids"], "labels": labels})

    def writing(path: Path, plain: dict) -> None:
        recorder.saving(trainer.state.global_step)
        write(path, plain)

    module.write_state = writing
    owner.register_forward_pre_hook(note, with_kwargs=True)
    trainer.train(resume_from_checkpoint=True if resumed(job) else None)
    return owner


def with_trainer(job: Job, recorder: Recorder) -> torch.nn.Module:
    owner = model(job)
    if job.data == "packs":
        from quire.vision import callback

        options = VisionPackingOptions(packing=True, packing_length=160, packing_drop_last=False)
        made = configure_training(
            arguments(job), options, train_dataset=vision_samples(), model=owner
        )
        return train(job, made.make_trainer(model=owner), recorder, callback)
    collate = None if job.data == "stream" else collator(job)
    trainer = Trainer(model=owner, args=arguments(job), data_collator=collate)
    attach(trainer, source(job), averaging=averaging(job))
    return train(job, trainer, recorder, attached)


def with_trl(job: Job, recorder: Recorder) -> torch.nn.Module:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from tests.collate.test_trainers import SPECIALS

    owner = model(job)
    options = {"packing": False, "dataset_kwargs": {"skip_prepare_dataset": True}}
    args = arguments(job, SFTConfig, gradient_checkpointing=False, max_length=None, **options)
    # SFTTrainer requires a dataset and looks at its first row; batches come from the source.
    rows = Dataset.from_list([{"input_ids": [1, 5, 2], "labels": [-100, 5, 2]}])
    trainer = SFTTrainer(
        model=owner,
        args=args,
        train_dataset=rows,
        data_collator=collator(job),
        processing_class=SPECIALS,
    )
    attach(trainer, source(job), averaging=averaging(job))
    return train(job, trainer, recorder, attached)


def with_lightning(job: Job, recorder: Recorder) -> torch.nn.Module:
    import lightning
    from fsspec.implementations.local import LocalFileOpener
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.packed_loss = model(job), PackedLoss()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.model.parameters(), lr=1e-2)

        def on_train_start(self) -> None:
            recorder.begin(self.global_step)

        def training_step(self, batch, _):
            recorder.batch(batch)
            inputs = {k: v for k, v in clean(batch).items() if k not in ("labels", "shift_labels")}
            # Lightning divides by the microbatches. The same constant on any number of ranks.
            return self.packed_loss(self.model(**inputs).logits, batch, 100.0) * ACCUMULATION

    class Random(lightning.Callback):
        """Lightning does not save the state of torch's generator."""

        def state_dict(self) -> dict:
            return {"random": of_all_ranks(job, torch.get_rng_state())}

        def load_state_dict(self, state: dict) -> None:
            self.restored = state["random"]

        def on_train_start(self, *_: object) -> None:
            if hasattr(self, "restored"):
                torch.set_rng_state(self.restored[min(job.rank, len(self.restored) - 1)])

    commit = LocalFileOpener.commit

    def committing(opened: LocalFileOpener) -> None:
        recorder.saving(trainer.global_step)
        commit(opened)

    LocalFileOpener.commit = committing  # what renames Lightning's complete file

    data = training_data(job, num_steps=PER_EPOCH if job.data == "stream" else None)
    module = Module()
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accumulate_grad_batches=ACCUMULATION,
        accelerator="cpu",
        devices=job.world,
        strategy=DDPStrategy(find_unused_parameters=True) if job.world > 1 else "auto",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=job.folder,
        callbacks=[
            ModelCheckpoint(job.folder, every_n_train_steps=SAVE_EVERY, save_last=True),
            Random(),
        ],
    )
    last = Path(job.folder, "last.ckpt")
    trainer.fit(module, data, ckpt_path=last if job.resume and last.exists() else None)
    return module


def with_jax(job: Job, recorder: Recorder) -> torch.nn.Module:
    """A bigram table, updated under jit; the loader's or grain's own state."""
    jax = start_jax(job)
    import jax.numpy as jnp
    from jax.experimental.multihost_utils import process_allgather

    from quire.stream import GrainBatches

    if job.data == "stream":
        batches = iter(GrainBatches(**vars_of_stream(job), rank=job.rank, world_size=job.world))
    else:
        data = TrainingData(source(job), accumulation=1, collate=collator(job, "np"))
        batches = forever(data)

    @jax.jit
    def gradient(table, ids, labels):
        def loss(table):
            scores = jax.nn.log_softmax(table[ids])
            chosen = jnp.take_along_axis(scores, jnp.maximum(labels, 0)[..., None], -1)[..., 0]
            return -jnp.where(labels >= 0, chosen, 0).sum()

        return jax.grad(loss)(table), (labels >= 0).sum()

    table, step, file = jnp.zeros((384, 384)), 0, Path(job.folder, "checkpoint.npz")
    if job.resume and file.exists():
        saved = np.load(file)
        table, step = jnp.asarray(saved["table"]), int(saved["step"])
        state = json.loads(str(saved["data"]))
        batches.set_state(state) if job.data == "stream" else data.load_state_dict(state)
    recorder.begin(step)
    while step < STEPS:
        ids, labels = shifted(next(batches), is_shifted=job.data == "stream")
        for _ in range(ACCUMULATION):  # the recorder counts microbatches
            recorder.batch({"input_ids": ids, "labels": labels})
        sums, targets = process_allgather(gradient(table, ids, labels), tiled=False)
        whole = sums.reshape(-1, *table.shape).sum(0) / targets.sum()
        table = table - 0.5 * jnp.asarray(whole)
        step += 1
        if step % SAVE_EVERY == 0 and job.rank == 0:
            state = batches.get_state() if job.data == "stream" else data.state_dict()
            temporary = file.with_suffix(".unfinished.npz")
            np.savez(temporary, table=np.asarray(table), step=step, data=json.dumps(state))
            recorder.saving(step)
            temporary.rename(file)
    owner = torch.nn.Module()
    owner.register_buffer("table", torch.from_numpy(np.array(table)))
    return owner


def start_jax(job: Job):
    """JAX; with several ranks, their processes joined through gloo."""
    import jax

    if job.world > 1:
        dist.init_process_group("gloo")  # only to agree on a port: launchers occupy theirs
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = of_all_ranks(job, free.getsockname()[1])[0]
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", job.world, job.rank)
    return jax


def shifted(batch: dict, *, is_shifted: bool) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and the labels they predict, of few shapes, so that jit compiles rarely."""
    ids, labels = (np.asarray(batch[name]) for name in ("input_ids", "labels"))
    if not is_shifted:
        labels = np.concatenate([labels[..., 1:], np.full_like(labels[..., :1], -100)], -1)
    width = [(0, 0)] * (ids.ndim - 1) + [(0, -ids.shape[-1] % 64)]
    return np.pad(ids, width), np.pad(labels, width, constant_values=-100)


def vars_of_stream(job: Job) -> dict:
    return {
        "files": [str(Path(job.corpus) / "texts" / "*.jsonl")],
        "tokenizer": "byte",
        "max_length": 64,
        "batch_size": ROWS // ACCUMULATION,
        "grad_accum": ACCUMULATION,
        "shuffle_buffer_size": 16,
    }


FRAMEWORKS = {
    "torch": plain_torch,
    "transformers": with_trainer,
    "trl": with_trl,
    "accelerate": with_accelerate,
    "lightning": with_lightning,
    "jax": with_jax,
}

if __name__ == "__main__":
    main()
