"""Try every kernel on a model: isolation, loss and gradients, compilations, tokens per second."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import transformers

import quire
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire.errors import QuireError
from quire.kernels.kernels import KERNELS, Kernel
from quire.kernels.report import KernelReport, KernelResult
from quire.speed import SpeedOptions, measure_speed, random_documents
from quire.text import ByteTokenizer
from quire.training.loss import PackedLoss
from quire.verify import check_isolation

Row = dict[str, Any]
Batch = dict[str, Any]
_UNAVAILABLE = (
    *("No available kernel", "No viable backend", "no kernel image", "not supported"),
    "NotImplementedError",
)
"""The messages of torch for a kernel that cannot run here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckOptions:
    """How much is computed."""

    num_batches: int = 3
    """Batches of different lengths; a compiled model must not be compiled again for one."""
    max_length: int = 64
    """Tokens of a row."""
    num_documents: int = 64
    """Documents of the measurement of speed; 0 leaves it out."""
    tolerance: float | None = None
    """Relative difference of loss and gradients that is rounding. None: by dtype."""
    seed: int = 0


def check_kernels(
    model: torch.nn.Module,
    *,
    device: str = "cpu",
    options: CheckOptions = CheckOptions(),  # noqa: B008 - immutable
    kernels: Sequence[Kernel] = KERNELS,
) -> KernelReport:
    """Every kernel that can run here, on copies of a transformers model; others by name.

    The packed loss and its gradients are compared with those of the same documents one by one,
    under eager attention in the model's dtype.
    """
    place = torch.device(device)
    model = model.to(place).train()
    rows = _batches_of_rows(model, options)
    dtype = next(model.parameters()).dtype
    tolerance = options.tolerance or (1e-3 if dtype in (torch.float32, torch.float64) else 5e-2)
    expected = _alone(_with_attention(model, "eager"), rows[0])
    check = _Check(rows=rows, expected=expected, tolerance=tolerance, options=options)
    results = tuple(_try(kernel, model, place, check) for kernel in kernels)
    return KernelReport(
        device=_device_name(place),
        dtype=str(dtype).removeprefix("torch."),
        model=type(model).__name__,
        versions={
            "quire": quire.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        results=results,
    )


Gradients = tuple[float, torch.Tensor]
"""The loss, and all gradients in one vector."""


@dataclass(frozen=True, kw_only=True)
class _Check:
    """What all kernels are compared with."""

    rows: list[list[Row]]
    expected: Gradients
    tolerance: float
    options: CheckOptions


def _try(
    kernel: Kernel, model: torch.nn.Module, device: torch.device, check: _Check
) -> KernelResult:
    """The result of one kernel; what it cannot do here is a skip, what it does wrong a failure."""
    if (reason := kernel.needs(device)) is not None:
        return KernelResult(name=kernel.name, outcome="skipped", reason=reason)
    try:
        with kernel.context():
            figures, failures = _measured(kernel, model, device, check)
    except (RuntimeError, ImportError, ValueError, NotImplementedError, QuireError) as error:
        text = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        outcome = "skipped" if any(sign in text for sign in _UNAVAILABLE) else "failed"
        return KernelResult(name=kernel.name, outcome=outcome, reason=text)  # type: ignore[arg-type]
    outcome = "failed" if failures else "passed"
    reason = "; ".join(failures)
    return KernelResult(name=kernel.name, outcome=outcome, reason=reason, figures=figures)  # type: ignore[arg-type]


def _measured(
    kernel: Kernel, model: torch.nn.Module, device: torch.device, check: _Check
) -> tuple[dict[str, float | int | str], list[str]]:
    """Figures of a kernel, and what is wrong with them."""
    figures: dict[str, float | int | str] = {}
    failures: list[str] = []
    owner = _with_attention(model, kernel.attn_implementation)
    batches = [_on(_collate(kernel, rows), device) for rows in check.rows]
    has_backward = kernel.has_backward(device)
    if not (kernel.is_compiled or kernel.is_sharded):
        report = check_isolation(owner, batches[0])
        figures["isolation"] = report.verdict
        if not report.isolated:
            failures.append(f"documents are not isolated ({report.meaning})")
    run = _prepared(kernel, owner, device)
    with run as called:
        loss, gradients = _loss_and_gradients(called, owner, batches[0], backward=has_backward)
        figures["loss difference"] = _relative(torch.tensor(loss), torch.tensor(check.expected[0]))
        if has_backward:
            figures["gradient difference"] = _relative(gradients, check.expected[1])
        else:
            figures["backward"] = f"not on {device.type}"
        if kernel.is_compiled:
            figures["compiled with"] = _backend(device)
            figures["compilations"] = _compilations(called, owner, batches)
            if int(figures["compilations"]) > 1:
                failures.append("compiled again for a batch of the same shape")
    failures += [
        f"{name} is {figures[name]:.2g}, over {check.tolerance:.2g}"
        for name in ("loss difference", "gradient difference")
        if float(figures.get(name, 0.0)) > check.tolerance
    ]
    is_plain = not (kernel.is_compiled or kernel.is_sharded or kernel.is_flat)
    if is_plain and has_backward and check.options.num_documents and not failures:
        figures |= _speed(owner, device, check.options)
    return figures, failures


@contextmanager
def _prepared(
    kernel: Kernel, owner: torch.nn.Module, device: torch.device
) -> Iterator[Callable[..., Any]]:
    """The model as it is called: as it is, compiled, or sharded over this one process."""
    if kernel.is_sharded:
        with _one_process(device):
            from torch.distributed.fsdp import fully_shard

            yield fully_shard(owner)  # type: ignore[misc]
        return
    if kernel.is_compiled:
        torch._dynamo.reset()
        yield torch.compile(owner, dynamic=False, backend=_backend(device))
        torch._dynamo.reset()
        return
    yield owner


def _backend(device: torch.device) -> str:
    """The compiler that needs no C++ compiler on CPUs, where it makes no kernels."""
    return "inductor" if device.type == "cuda" else "aot_eager"


@contextmanager
def _one_process(device: torch.device) -> Iterator[None]:
    if dist.is_initialized():
        yield
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _compilations(
    called: Callable[..., Any], owner: torch.nn.Module, batches: Sequence[Batch]
) -> int:
    """How often the model was compiled for batches of one shape."""
    counters: Any = torch._dynamo.utils.counters
    before = counters["stats"]["unique_graphs"]
    _loss_and_gradients(called, owner, batches[0], backward=True)
    once = counters["stats"]["unique_graphs"] - before
    for batch in batches[1:]:
        _loss_and_gradients(called, owner, batch, backward=True)
    again = counters["stats"]["unique_graphs"] - before - once
    return 1 + int(again > 0)


def _loss_and_gradients(
    called: Callable[..., Any], owner: torch.nn.Module, batch: Batch, *, backward: bool
) -> Gradients:
    loss = PackedLoss()
    owner.zero_grad(set_to_none=True)
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    total = loss.totals(batch).weight
    with torch.set_grad_enabled(backward):
        found = loss(called(**inputs).logits, batch, total)
    if not backward:
        return float(found.detach()), torch.zeros(0)
    torch.autograd.backward(found)
    return float(found.detach()), _gradients(owner)


def _alone(owner: torch.nn.Module, rows: list[Row]) -> Gradients:
    """The documents one by one, whose losses are added before they are divided."""
    loss, place = PackedLoss(), next(owner.parameters()).device
    every = [
        part for row in rows for part in np.split(row["input_ids"], row["document_starts"][1:])
    ]
    batches = []
    for document in every:
        ids = torch.from_numpy(document.astype(np.int64))[None].to(place)
        batches.append({"input_ids": ids, "labels": ids})
    total = sum(loss.totals(batch).weight for batch in batches)
    owner.zero_grad(set_to_none=True)
    parts = []
    for batch in batches:
        part = loss(owner(input_ids=batch["input_ids"]).logits, batch, total)
        torch.autograd.backward(part)
        parts.append(float(part.detach()))
    return sum(parts), _gradients(owner)


def _gradients(owner: torch.nn.Module) -> torch.Tensor:
    found = []
    for parameter in owner.parameters():
        gradient = parameter.grad
        if gradient is not None:
            whole = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
            found.append(whole.detach().float().flatten())
    return torch.cat(found)


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    largest = float(expected.abs().max()) or 1.0
    return float((found - expected).abs().max()) / largest


def _batches_of_rows(model: torch.nn.Module, options: CheckOptions) -> list[list[Row]]:
    """Batches of two rows, each of several random documents that fill it."""
    table: Any = model.get_input_embeddings()  # type: ignore[operator]
    chance = np.random.default_rng(options.seed)
    length = options.max_length

    def row() -> Row:
        inner = chance.choice(np.arange(2, length - 1), 3, replace=False)
        starts = np.array([0, *sorted(inner.tolist())])
        ids = chance.integers(0, table.num_embeddings, length)
        return {"input_ids": ids, "document_starts": starts}

    return [[row(), row()] for _ in range(options.num_batches)]


def _collate(kernel: Kernel, rows: list[Row]) -> Batch:
    """One shape for all batches, so that a compiled model is compiled once."""
    length = sum(len(row["input_ids"]) for row in rows)
    if kernel.is_flat:
        flat = PaddingFreeCollator(num_tokens=length, num_segments=16, max_length=length)
        return dict(flat(rows))
    return dict(DataCollatorForCausalLM(ByteTokenizer())(rows))


def _with_attention(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """A copy of the model with this attention."""
    owner = copy.deepcopy(model)
    owner.set_attn_implementation(name)  # type: ignore[operator]
    return owner


def _speed(
    owner: torch.nn.Module, device: torch.device, options: CheckOptions
) -> dict[str, float | int | str]:
    """Tokens per second, padded and packed."""
    table: Any = owner.get_input_embeddings()  # type: ignore[operator]
    given = (options.num_documents, table.num_embeddings, options.max_length, options.seed)
    how = SpeedOptions(
        max_length=options.max_length,
        tokens_per_step=16 * options.max_length,
        repeats=2,
        device=str(device),
    )
    measured = measure_speed(owner, random_documents(*given), how)
    return {f"{one.name} tokens/s": round(one.tokens_per_second) for one in measured}


def _on(batch: Batch, device: torch.device) -> Batch:
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
